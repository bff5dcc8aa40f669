"""Where webhooks may go: the internet, and what ``TOOLFLOW_WEBHOOK_ALLOW`` names.

Whoever may start a run may name an address. Without a check that would let them reach what only this machine can
reach: databases, consoles, the metadata of a cloud. What the settings and the address itself rule out is refused at
once; where a name leads is known only when something is sent.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from yarl import URL

from flows.webhook_address import find_problem, is_usable_port

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# What `is_global` leaves out, in some version of Python or other.
_REFUSED_V4 = tuple(map(ipaddress.IPv4Network, ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24")))
_INTERNET_V6 = ipaddress.IPv6Network("2000::/3")
# Tunnels lead to an IPv4 address that is part of theirs; the last is for documentation.
_REFUSED_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20")))

_METADATA_NAMES = frozenset(
    {"metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}
)
# Where clouds tell a machine its own secrets: nearly all at a link-local address; some have others.
_METADATA_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            *("169.254.0.0/16", "fe80::/10", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
            *("fd00:ec2::/32", "fd00:42::42", "fd20:ce::254"),
        ),
    )
)
# Addresses of IPv6 that gateways turn into the one of IPv4 at their end.
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48")))

_SETTING = "TOOLFLOW_WEBHOOK_ALLOW"
_DEFAULT_PORT = 443
_ANY_PORT = "*"
_LOOPBACK = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))


@dataclass(frozen=True, slots=True)
class Target:
    """A host or a network that the settings name: it may be private, and may be reached without TLS."""

    name: str
    """In lower case; one that begins with a dot stands for all hosts below it. Empty for a network."""
    network: _Network | None
    port: int | None
    """None for all of them."""

    @classmethod
    def read(cls, text: str) -> Target:
        """A host, an address or a network, and behind a colon its port or ``*``. Raises ``ValueError``."""
        place, port = _split(text)
        with suppress(ValueError):
            return cls("", ipaddress.ip_network(place, strict=False), port)
        if not re.fullmatch(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?", place) or re.fullmatch(r"[\d.]+", place):
            raise ValueError(f"“{text}” is neither a host nor an address nor a network.")
        return cls(place.lower().removeprefix("*").rstrip("."), None, port)

    def is_host(self, host: str) -> bool:
        """Whether this is the host of that name, or one above it that stands for all below."""
        host = host.lower().rstrip(".")
        return bool(self.name) and (host == self.name or (self.name.startswith(".") and host.endswith(self.name)))

    @property
    def is_metadata(self) -> bool:
        """Whether this names only where clouds tell a machine its own secrets. Names are not resolved."""
        if self.network is not None:
            network = self.network
            return any(
                network.version == known.version and network.subnet_of(known)  # type: ignore[arg-type]  # of one version
                for known in _METADATA_NETWORKS
            )
        try:
            # What resolvers take for an address, such as “0xa9fea9fe”.
            return _is_metadata(ipaddress.IPv4Address(socket.inet_aton(self.name)))
        except (OSError, UnicodeEncodeError):
            return self.name in _METADATA_NAMES

    def has_address(self, address: IPAddress) -> bool:
        """Whether the address is one of this network."""
        return self.network is not None and address in self.network

    def has_port(self, port: int | None) -> bool:
        """Whether the port may be used."""
        return self.port is None or self.port == port


def _split(text: str) -> tuple[str, int | None]:
    if found := re.fullmatch(r"\[(?P<place>[^]]*:[^]]*)](:(?P<port>.*))?", text):
        place, port = found["place"], found["port"]
    elif text.count(":") == 1:
        place, port = text.split(":")
    else:
        # Without a port; with several colons it is an address of IPv6.
        place, port = text, None
    if port is None:
        return place, _DEFAULT_PORT
    if port == _ANY_PORT:
        return place, None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not is_usable_port(int(port)):
        raise ValueError(f"“{port}” is not a port for webhooks.")
    return place, int(port)


@dataclass(frozen=True, slots=True)
class Allowance:
    """All that the settings name."""

    targets: tuple[Target, ...]

    def permits(self, url: URL, address: IPAddress) -> bool:
        """Whether a webhook for ``url`` may connect to ``address``."""
        address = _unwrap(address)
        if _is_metadata(address):
            return False
        if any(target.has_port(url.port) for target in self._find_targets(url, [address])):
            return True
        return url.scheme == "https" and is_public(address)

    def may_permit(self, url: URL) -> bool:
        """Whether there is an address that the name in ``url`` could lead to, and that ``permits`` lets through."""
        usable = (target for target in self.targets if target.has_port(url.port))
        return url.scheme == "https" or any(target.network is not None or _names(target, url) for target in usable)

    def refuse(self, url: URL, addresses: Iterable[IPAddress]) -> str:
        """Why nothing may be sent to ``url``, whose name leads to ``addresses`` if they are known, in a sentence."""
        found = list(addresses)
        # What a name leads to is told to nobody who could use webhooks to find it out.
        named = self._find_targets(url, _read_written(url.raw_host or ""))
        if named and not any(target.has_port(url.port) for target in named):
            return f"{_SETTING} names “{url.host}”, but not its port {url.port}."
        if url.scheme == "http" and (not found or any(map(is_public, found))):
            return f"Plain http:// is only for hosts and networks that {_SETTING} names; use https:// for “{url.host}”."
        return (
            f"“{url.host}” leads to an address that is not one of the internet; {_SETTING} names what else webhooks "
            "may reach."
        )

    def _find_targets(self, url: URL, addresses: Sequence[IPAddress]) -> list[Target]:
        """What the settings name of a host and of addresses, whatever the port."""
        found = [_unwrap(address) for address in addresses]
        return [target for target in self.targets if _names(target, url) or any(map(target.has_address, found))]


def _names(target: Target, url: URL) -> bool:
    # A name with umlauts is written in two ways.
    return target.is_host(url.host or "") or target.is_host(url.raw_host or "")


def read_allowance() -> Allowance:
    """What the settings name."""
    return _read_allowance(tuple(settings.TOOLFLOW_WEBHOOK_ALLOW))


@lru_cache(maxsize=8)
def _read_allowance(entries: tuple[str, ...]) -> Allowance:
    return Allowance(tuple(map(Target.read, entries)))


def find_obstacle(address: str) -> str:
    """Why nothing can be sent to ``address`` wherever its name leads, in one sentence; empty if it may be possible."""
    if problem := find_problem(address):
        return problem
    url, allowance = URL(address), read_allowance()
    written = _read_written(url.raw_host or "")
    if written:
        return "" if any(allowance.permits(url, one) for one in written) else allowance.refuse(url, written)
    return "" if allowance.may_permit(url) else allowance.refuse(url, ())


def _read_written(host: str) -> Sequence[IPAddress]:
    """The addresses that are written instead of a name, or that the name has everywhere; nothing for other names."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return _LOOPBACK
    with suppress(ValueError):
        return [ipaddress.ip_address(host)]
    return ()


def is_public(address: IPAddress) -> bool:
    """Whether an address is one of the internet that anybody can reach."""
    address = _unwrap(address)
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    # One that looks like any other leads to the cloud's own.
    if _is_metadata(address):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return address in _INTERNET_V6 and not any(address in network for network in _REFUSED_V6)


def _is_metadata(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        address = _find_inner(address)
    return any(address in network for network in _METADATA_NETWORKS)


def _find_inner(address: ipaddress.IPv6Address) -> IPAddress:
    """The address of IPv4 that one of IPv6 stands for; itself if it stands for none."""
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _unwrap(address: IPAddress) -> IPAddress:
    return getattr(address, "ipv4_mapped", None) or address
