"""Where webhooks may go: the internet, and what ``TOOLFLOW_WEBHOOK_ALLOW`` names.

Whoever may start a run may name an address. Without a check that would let them reach what only this machine can
reach: databases, consoles, the metadata of a cloud. So it is the address of the connection itself that is judged.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings
from yarl import URL

from flows.webhook_address import find_problem

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# What `is_global` leaves out, in some version of Python or other.
_REFUSED_V4 = tuple(map(ipaddress.IPv4Network, ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24")))
_INTERNET_V6 = ipaddress.IPv6Network("2000::/3")
# Tunnels lead to an IPv4 address that is part of theirs; the last is for documentation.
_REFUSED_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20")))

_SETTING = "TOOLFLOW_WEBHOOK_ALLOW"


class RefusedTargetError(OSError):
    """A webhook may not go there. ``str(error)`` is a sentence; ``address`` is what it would have connected to."""

    def __init__(self, sentence: str, *, address: str = "") -> None:
        super().__init__(sentence)
        self.address = address


@dataclass(frozen=True, slots=True)
class Allowance:
    """Hosts and networks that the settings name: they may be private, and may be reached without TLS."""

    names: frozenset[str]
    """In lower case; one that begins with a dot stands for all below it."""
    networks: tuple[_Network, ...]

    def names_host(self, host: str) -> bool:
        """Whether a host is named."""
        host = host.lower().rstrip(".")
        parents = (host[place:] for place, letter in enumerate(host) if letter == ".")
        return host in self.names or any(parent in self.names for parent in parents)

    def permits(self, url: URL, address: IPAddress) -> bool:
        """Whether a webhook for ``url`` may connect to ``address``."""
        address = _unwrap(address)
        if any(map(self.names_host, (url.host or "", url.raw_host or ""))) or any(
            address in network for network in self.networks
        ):
            return True
        return url.scheme == "https" and is_public(address)


def read_allowance() -> Allowance:
    """What the settings name."""
    return _parse_allowance(tuple(settings.TOOLFLOW_WEBHOOK_ALLOW))


@lru_cache(maxsize=8)
def _parse_allowance(entries: tuple[str, ...]) -> Allowance:
    names, networks = set(), []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            names.add(entry.lower().removeprefix("*").rstrip("."))
    return Allowance(frozenset(names), tuple(networks))


def is_public(address: IPAddress) -> bool:
    """Whether an address is one of the internet that anybody can reach."""
    address = _unwrap(address)
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return address in _INTERNET_V6 and not any(address in network for network in _REFUSED_V6)


def _unwrap(address: IPAddress) -> IPAddress:
    return getattr(address, "ipv4_mapped", None) or address


async def find_addresses(url: URL, allowance: Allowance) -> list[IPAddress]:
    """The addresses of a target that may be connected to.

    Raises ``RefusedTargetError`` if there are others only, ``socket.gaierror`` if its name can't be resolved.
    """
    if problem := find_problem(str(url)):
        raise RefusedTargetError(problem)
    found = await _resolve(url.raw_host or "", url.port or 0)
    permitted = [address for address in found if allowance.permits(url, address)]
    if not permitted:
        raise _refuse(url, found)
    return permitted


def make_guard(url: URL, allowance: Allowance) -> Any:
    """Makes the sockets of connections for ``url``, and none to an address that is not permitted.

    This comes last, whatever was resolved before. Raises ``RefusedTargetError``.
    """

    def open_socket(info: Any) -> socket.socket:
        family, kind, protocol, _, place = info
        address = ipaddress.ip_address(place[0])
        if not allowance.permits(url, address):
            raise _refuse(url, [address])
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


def _refuse(url: URL, addresses: Iterable[IPAddress]) -> RefusedTargetError:
    found = list(addresses)
    shown = ", ".join(map(str, found))
    if url.scheme == "http" and any(map(is_public, found)):
        return RefusedTargetError(
            f"Plain http:// is only for hosts and networks that {_SETTING} names; use https:// for “{url.host}”.",
            address=shown,
        )
    return RefusedTargetError(
        f"“{url.host}” leads to an address that is not one of the internet; {_SETTING} names what else webhooks may "
        "reach.",
        address=shown,
    )
