"""One POST to another server, on a connection to an address that webhooks may reach."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import httpx2
from yarl import URL

from flows import __version__
from flows.engine.json_values import clean_value
from flows.engine.provider_errors import parse_retry_after
from runs.webhooks.addresses import IPAddress, explain_refusal, find_syntax_problem, is_permitted

logger = logging.getLogger(__name__)

TIMEOUT = 15.0
"""Seconds from the look-up of the name to the status of the answer."""
CONNECT_TIMEOUT = 5.0
"""Seconds for the connection to one of the addresses of a name."""
BODY_TIMEOUT = 3.0
"""Seconds for the beginning of an answer's body: its status has come already."""
MAX_KEPT_BYTES = 1_024
"""Bytes of an answer's body that are kept."""

_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": f"ToolFlow/{__version__}",
    "Accept": "*/*",
    # What comes back is kept as it is.
    "Accept-Encoding": "identity",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a POST."""

    status: int | None = None
    """None if there was no answer."""
    problem: str = ""
    """Why it did not succeed, in one sentence; empty if it did."""
    body: str = ""
    """How the body begins, safe to store."""
    retry_after: float | None = None
    """Seconds that the receiver asks for, at most a day."""
    is_refused: bool = False
    """Whether it was never sent, and should not be tried again."""


class RefusedTargetError(Exception):
    """A webhook may not go there; ``str(error)`` is a sentence."""


async def post(url: str, *, body: str, headers: Mapping[str, str]) -> Answer:
    """Send JSON to ``url``. Raises nothing: whatever goes wrong is part of the answer.

    Redirects are not followed, and proxies of the environment are not used: both would connect to something else than
    what was checked.
    """
    try:
        if problem := find_syntax_problem(url):
            raise RefusedTargetError(problem)
        timeout = httpx2.Timeout(TIMEOUT, connect=CONNECT_TIMEOUT)
        # No connection that was opened for another delivery is used again.
        async with httpx2.AsyncClient(verify=_load_certificates(), trust_env=False, timeout=timeout) as client:
            async with asyncio.timeout(TIMEOUT):
                response = await _connect_and_send(client, URL(url), body, headers)
            return await _parse_answer(response)
    except RefusedTargetError as error:
        return Answer(problem=str(error), is_refused=True)
    except Exception as error:  # whatever it is, others are to be sent  # noqa: BLE001
        return Answer(problem=_explain(url, error))


async def resolve(host: str, port: int) -> list[IPAddress]:
    """The addresses that a name leads to. Raises ``socket.gaierror``."""
    with suppress(ValueError):
        return [ipaddress.ip_address(host)]
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(text) for text in dict.fromkeys(str(row[4][0]) for row in rows)]


def list_permitted(url: URL, addresses: list[IPAddress]) -> list[IPAddress]:
    """Those of the addresses that may be connected to for ``url``. Raises ``RefusedTargetError`` if there are none."""
    permitted = [address for address in addresses if is_permitted(url, address)]
    if not permitted:
        leads_to = ", ".join(map(str, addresses))
        logger.warning("A webhook was not sent to %s, which leads to %s.", url.host, leads_to)
        raise RefusedTargetError(explain_refusal(url))
    return permitted


async def _connect_and_send(
    client: httpx2.AsyncClient, url: URL, body: str, headers: Mapping[str, str]
) -> httpx2.Response:
    """The beginning of the answer from the first permitted address that can be connected to."""
    addresses = list_permitted(url, await resolve(url.raw_host or "", url.port or 0))
    for address in addresses:
        # The client gets the address itself: no name is looked up after it was judged.
        request = client.build_request(
            "POST",
            str(url.with_host(str(address))),
            content=body.encode(),
            headers={**_HEADERS, **headers, "Host": url.raw_authority},
            extensions={"sni_hostname": url.raw_host},
        )
        try:
            return await client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if address is addresses[-1]:
                raise
    raise AssertionError("The last address returns or raises.")


async def _parse_answer(response: httpx2.Response) -> Answer:
    status, body = response.status_code, await _read_beginning(response)
    if 200 <= status < 300:
        return Answer(status=status, body=body)
    reason = clean_value(response.reason_phrase.strip()[:60]).value
    problem = f"The receiver answered {status}{f' {reason}' if reason else ''}."
    if 300 <= status < 400:
        problem = f"The receiver answered {status} and names another address; redirects are not followed."
    return Answer(status=status, body=body, problem=problem, retry_after=parse_retry_after(response.headers))


async def _read_beginning(response: httpx2.Response) -> str:
    found = b""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in response.aiter_raw():
                found += part
                if len(found) >= MAX_KEPT_BYTES:
                    break
    await response.aclose()
    cleaned: str = clean_value(found[:MAX_KEPT_BYTES].decode(errors="replace")).value
    return cleaned


def _explain(url: str, error: Exception) -> str:
    """What went wrong, in a sentence."""
    host = URL(url).host
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return f"“{host}” did not answer within {TIMEOUT:g} seconds."
    if not isinstance(error, httpx2.HTTPError | OSError | UnicodeError):
        logger.error("A webhook could not be sent to %s.", host, exc_info=error)
        return "Internal error when sending it; see the log."
    cause: BaseException = error
    while following := cause.__cause__ or cause.__context__:
        cause = following
    reason = clean_value(getattr(cause, "strerror", None) or str(cause) or type(cause).__name__).value
    return f"No answer from “{host}”: {reason.rstrip('.')}."


@cache
def _load_certificates() -> ssl.SSLContext:
    # Loading them takes long. They are those that calls of models are checked by.
    return httpx2.create_ssl_context()
