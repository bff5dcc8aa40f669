"""The connections below the ``openai`` client: aiohttp's, which take a fraction of the time of httpx2's own."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from functools import cache
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from yarl import URL

from flows.engine.errors import ModelError, ModelErrorCode

CONNECT_TIMEOUT = 10.0
"""Seconds."""
_KEEP_ALIVE = 30.0
"""Seconds that an idle connection is kept."""
_PROBE_INTERVAL_SECONDS = 60
_MADE_BY_HTTPX = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_LARGE_BODY = 2**20
"""Bytes; aiohttp writes what is larger in one piece only under protest."""

_ERRORS: dict[type[aiohttp.ClientError], type[httpx2.TransportError]] = {
    aiohttp.ClientProxyConnectionError: httpx2.ProxyError,
    aiohttp.ConnectionTimeoutError: httpx2.ConnectTimeout,
    aiohttp.ClientConnectorError: httpx2.ConnectError,
    aiohttp.ClientOSError: httpx2.ReadError,
    aiohttp.ClientError: httpx2.RemoteProtocolError,
}
"""What errors of connections are in httpx2; the first that fits counts."""


class HttpTransport(httpx2.AsyncBaseTransport):
    """Carries the requests of an ``httpx2.AsyncClient`` over aiohttp, on the event loop of its first request.

    The caller bounds the calls in flight and the time of each. Errors come out as those of httpx2.
    """

    def __init__(self, *, proxy: str | None = None) -> None:
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and read the whole answer. Raises ``httpx2.TransportError``."""
        content = request.content
        # One turn of the event loop learns which idle connections the other side has closed, the next takes note of
        # it. Without them a call that follows a pause of the loop would go out on a dead connection.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        try:
            async with self._open_session().request(
                request.method,
                # httpx2 has made a header of the user name in the address.
                URL(str(request.url), encoded=True).with_user(None),
                headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw],
                data=io.BytesIO(content) if len(content) > _LARGE_BODY else content,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                body = await response.read()
        except aiohttp.ClientHttpProxyError as error:
            # Not chained, since its own text repeats the proxy's address with user name and password.
            raise httpx2.ProxyError(f"the proxy answered {error.status} {error.message}") from None
        except aiohttp.ClientResponseError as error:
            raise httpx2.RemoteProtocolError(error.message) from None
        except aiohttp.ClientError as error:
            kind = next(kind for known, kind in _ERRORS.items() if isinstance(error, known))
            raise kind(str(getattr(error, "os_error", None) or error) or type(error).__name__) from error
        return httpx2.Response(response.status, headers=response.raw_headers, content=body, request=request)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, socket_factory=_open_socket, ssl=_build_ssl_context(), keepalive_timeout=_KEEP_ALIVE
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_MADE_BY_HTTPX,
            )
        return self._session


def find_proxy(url: httpx2.URL) -> str | None:
    """The proxy that the environment names for ``url``. Raises ``ModelError`` for one that does not speak HTTP."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.netloc.decode("ascii")):
        return None
    scheme, separator, _ = proxy.partition("://")
    if not separator:
        return f"http://{proxy}"
    if scheme.lower() not in ("http", "https"):
        raise ModelError(
            ModelErrorCode.NOT_CONFIGURED,
            f"The proxy in the environment is one for {scheme}://, and calls only go through http:// or https://. "
            f"Change {url.scheme.upper()}_PROXY or ALL_PROXY, or add {url.host} to NO_PROXY, and restart the worker.",
        )
    return proxy


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that shows signs of life while an answer is awaited: routers forget connections that are silent."""
    opened = socket.socket(*address[:3])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on every system
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_INTERVAL_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_INTERVAL_SECONDS)
    return opened


@cache
def _build_ssl_context() -> ssl.SSLContext:
    # Loading the certificates takes long; one context serves all event loops.
    return httpx2.create_ssl_context()
