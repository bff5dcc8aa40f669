"""One POST to somebody else's server."""

from __future__ import annotations

import asyncio
import email.utils
import io
import logging
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import aiohttp
import httpx2
from aiohttp.abc import AbstractResolver, ResolveResult
from django.utils import timezone
from yarl import URL

from flows import __version__
from flows.engine.json_values import clean_value
from flows.webhook_address import Allowance, IPAddress
from runs.webhooks.targets import RefusedTargetError, find_addresses, make_guard

logger = logging.getLogger(__name__)

TIMEOUT = 15.0
"""Seconds from the look-up of the name to the end of the answer."""
BODY_PATIENCE = 3.0
"""Seconds that the beginning of an answer's body is waited for: its status has come already."""
MOST_KEPT = 1_024
"""Bytes of an answer's body that are read and kept."""


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
    """Seconds that the receiver asks for."""
    is_refused: bool = False
    """Whether it was never sent, and should not be tried again."""


async def post(url: str, *, body: str, headers: Mapping[str, str], allowance: Allowance) -> Answer:
    """Send JSON to ``url``. Raises nothing: whatever goes wrong is part of the answer.

    Redirects are not followed, and proxies of the environment are not asked: both would connect to something else
    than what was checked.
    """
    deadline = asyncio.get_running_loop().time() + TIMEOUT
    try:
        async with asyncio.timeout_at(deadline):
            target = URL(url)
            addresses = await find_addresses(target, allowance)
        # A connection of its own: none that was opened for somebody else is used again.
        connector = aiohttp.TCPConnector(
            resolver=_Found(addresses),
            use_dns_cache=False,
            force_close=True,
            ssl=_make_ssl_context() if target.scheme == "https" else True,
            socket_factory=make_guard(target, allowance),
        )
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:
            async with asyncio.timeout_at(deadline):
                response = await session.post(
                    target,
                    data=io.BytesIO(body.encode()),
                    headers={**_HEADERS, **headers},
                    allow_redirects=False,
                )
            try:
                return await _read_answer(response, deadline)
            finally:
                response.close()
    except Exception as error:  # whatever it is, others are to be sent  # noqa: BLE001
        return _explain(url, error)


_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": f"ToolFlow/{__version__}",
    "Accept": "*/*",
    # What comes back is kept as it is.
    "Accept-Encoding": "identity",
}


class _Found(AbstractResolver):
    """Gives the addresses that were found and checked already."""

    def __init__(self, addresses: Sequence[IPAddress]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """There is nothing to close."""


async def _read_answer(response: aiohttp.ClientResponse, deadline: float) -> Answer:
    status = response.status
    body = await _read_beginning(response, deadline)
    if 200 <= status < 300:
        return Answer(status=status, body=body)
    problem = f"The receiver answered {status}{_name_status(response)}."
    if 300 <= status < 400:
        problem = f"The receiver answered {status} and names another address; redirects are not followed."
    return Answer(
        status=status,
        body=body,
        problem=problem,
        retry_after=read_retry_after(response.headers.get("Retry-After", ""), timezone.now()),
    )


async def _read_beginning(response: aiohttp.ClientResponse, deadline: float) -> str:
    found = b""
    patience = min(deadline, asyncio.get_running_loop().time() + BODY_PATIENCE)
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout_at(patience):
            while len(found) < MOST_KEPT and (part := await response.content.read(MOST_KEPT - len(found))):
                found += part
    cleaned: str = clean_value(found.decode(errors="replace")).value
    return cleaned


def _name_status(response: aiohttp.ClientResponse) -> str:
    reason = clean_value((response.reason or "").strip()[:60]).value
    return f" {reason}" if reason else ""


def read_retry_after(text: str, now: datetime) -> float | None:
    """The seconds that a header ``Retry-After`` asks for, a number or a date; None if it makes no sense."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _explain(url: str, error: Exception) -> Answer:
    """What went wrong, in a sentence."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, RefusedTargetError):
        logger.warning("A webhook was not sent to %s (%s): %s", _name_host(url), cause.address or "no address", cause)
        return Answer(problem=str(cause), is_refused=True)
    host = _name_host(url)
    if isinstance(error, TimeoutError):
        return Answer(problem=f"“{host}” did not answer within {TIMEOUT:g} seconds.")
    if isinstance(cause, socket.gaierror | UnicodeError):
        return Answer(problem=f"The name “{host}” can’t be resolved.")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Answer(problem=f"The certificate of “{host}” is not trusted: {cause.verify_message}.")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Answer(problem=f"The certificate of “{host}” is not trusted: {error.certificate_error}.")
    if isinstance(error, aiohttp.ClientSSLError):
        return Answer(problem=f"“{host}” and ToolFlow found no common way to encrypt the connection.")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Answer(problem=f"No connection to “{host}”: {error.os_error.strerror or error.os_error}.")
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return Answer(problem=f"“{host}” closed the connection without an answer.")
    if isinstance(error, aiohttp.ClientError):
        return Answer(problem=f"“{host}” answered with something that is not HTTP.")
    logger.error("A webhook could not be sent to %s.", host, exc_info=error)
    return Answer(problem="ToolFlow failed to send it; the log says why.")


def _name_host(url: str) -> str:
    with suppress(ValueError):
        return URL(url).host or "no host"
    return "no host"


@cache
def _make_ssl_context() -> ssl.SSLContext:
    # Loading the certificates takes long. They are those that calls of models are checked by.
    return httpx2.create_ssl_context()
