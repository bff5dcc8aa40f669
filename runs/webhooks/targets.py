"""Where a name leads, and that nothing is sent to where webhooks may not go.

What a name leads to can change from one moment to the next. So it is the address of the connection itself that is
judged.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

from yarl import URL

from flows.webhook_address import Allowance, IPAddress, find_problem


class RefusedTargetError(OSError):
    """A webhook may not go there. ``str(error)`` is a sentence; ``address`` is what it would have connected to."""

    def __init__(self, sentence: str, *, address: str = "") -> None:
        super().__init__(sentence)
        self.address = address


async def find_addresses(url: URL, allowance: Allowance) -> list[IPAddress]:
    """The addresses of a target that may be connected to.

    Raises ``RefusedTargetError`` if there are others only, ``socket.gaierror`` if its name can't be resolved.
    """
    if problem := find_problem(str(url)):
        raise RefusedTargetError(problem)
    found = await _resolve(url.raw_host or "", url.port or 0)
    permitted = [address for address in found if allowance.permits(url, address)]
    if not permitted:
        raise _refuse(url, found, allowance)
    return permitted


def make_guard(url: URL, allowance: Allowance) -> Any:
    """Makes the sockets of connections for ``url``, and none to an address that is not permitted.

    This comes last, whatever was resolved before. Raises ``RefusedTargetError``.
    """

    def open_socket(info: Any) -> socket.socket:
        family, kind, protocol, _, place = info
        address = ipaddress.ip_address(place[0])
        if not allowance.permits(url, address):
            raise _refuse(url, [address], allowance)
        return socket.socket(family, kind, protocol)

    return open_socket


async def _resolve(host: str, port: int) -> list[IPAddress]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts = dict.fromkeys(str(row[4][0]) for row in rows)
    return [ipaddress.ip_address(text) for text in texts]


def _refuse(url: URL, addresses: Iterable[IPAddress], allowance: Allowance) -> RefusedTargetError:
    found = list(addresses)
    return RefusedTargetError(allowance.refuse(url, found), address=", ".join(map(str, found)))
