"""Where webhooks may go: the internet, and what ``TOOLFLOW_WEBHOOK_ALLOW`` names.

Users who may start a run may name an address. Without a check they could reach what only this machine can reach:
databases, consoles, the metadata of a cloud. What the address and the settings rule out is refused at once; where a
name leads is known only when something is sent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from yarl import URL

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_ADDRESS_BYTES = 2_000
"""Length of an address in UTF-8."""
_EXAMPLE = "such as https://example.com/hooks/toolflow"


def _list_networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


# What some versions of Python take for global addresses: reserved ones, tunnels that lead to an address of IPv4 within
# theirs, and examples of documentation.
_NOT_PUBLIC = _list_networks(
    *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24"),
    *("2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20"),
)
_INTERNET_V6 = ipaddress.ip_network("2000::/3")
# Addresses of IPv6 that gateways turn into the one of IPv4 at their end.
_TRANSLATED = _list_networks("64:ff9b::/96", "64:ff9b:1::/48")
# Where clouds keep the secrets of a machine: nearly all at a link-local address; some have others.
_METADATA_NETWORKS = _list_networks(
    *("169.254.0.0/16", "fe80::/10", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("fd00:ec2::/32", "fd00:42::42", "fd20:ce::254"),
)


# Addresses as text


def find_syntax_problem(address: str) -> str:
    """Why nothing can be sent to ``address`` under any setting, in one sentence; empty if it can be tried."""
    if re.search(r"[\s\\\x00-\x1f\x7f-\x9f\ud800-\udfff]", address):
        return f"The address has spaces, line breaks or backslashes in it; write one {_EXAMPLE}."
    if len(address.encode()) > MAX_ADDRESS_BYTES:
        return f"The address is longer than {MAX_ADDRESS_BYTES:,} bytes."
    try:
        # Parsed as where it is sent: two parsers could mean two hosts.
        url = URL(address)
        host, port = url.raw_host, url.port
    except ValueError as error:
        return f"This is not a valid URL ({str(error).rstrip('.')}); write one {_EXAMPLE}."
    if url.scheme not in ("http", "https") or not host:
        return f"The address must begin with https:// or http:// and name a host, {_EXAMPLE}."
    if "@" in url.raw_authority:
        return "The URL must not contain a user name or a password: receivers verify ToolFlow by its signature."
    if not _is_usable_port(port or 0):
        return f"The port {port} is not one for webhooks: use 80, 443 or one above 1024."
    return ""


def find_target_problem(address: str) -> str:
    """Why nothing can be sent to ``address`` wherever its name leads, in one sentence; empty if it may be possible."""
    if problem := find_syntax_problem(address):
        return problem
    url = URL(address)
    host = (url.raw_host or "").lower().rstrip(".")
    is_here = host == "localhost" or host.endswith(".localhost")
    try:
        written = map(ipaddress.ip_address, ("127.0.0.1", "::1") if is_here else (host,))
        may_work = any(is_permitted(url, address) for address in written)
    except ValueError:
        # A name: there may be an address that it leads to, and that is permitted.
        may_work = url.scheme == "https" or any(one.network or one.is_host_of(url) for one in _list_targets(url))
    return "" if may_work else explain_refusal(url)


def explain_refusal(url: URL) -> str:
    """Why a webhook may not go to ``url``. Never what its name leads to: webhooks could be used to find that out."""
    return (
        f"Webhooks can't be sent to “{url.host}” ({url.scheme}, port {url.port}): they are sent to public "
        "addresses by https, and to the hosts, networks and ports that TOOLFLOW_WEBHOOK_ALLOW names."
    )


def _is_usable_port(port: int) -> bool:
    """Whether webhooks may go to a port: what listens on others speaks no HTTP."""
    return port in (80, 443) or 1024 < port < 65_536


# Addresses of the network


def is_public(address: IPAddress) -> bool:
    """Whether an address is public on the internet."""
    address = _unwrap(address)
    if not address.is_global or address.is_multicast or address.is_reserved or _is_metadata(address):
        return False
    return not _is_in(address, _NOT_PUBLIC) and (address.version == 4 or address in _INTERNET_V6)


def _is_metadata(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if _is_in(address, _TRANSLATED):
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        else:
            address = address.ipv4_mapped or address.sixtofour or address
    return _is_in(address, _METADATA_NETWORKS)


def _is_in(address: IPAddress, networks: Iterable[_Network]) -> bool:
    return any(address in network for network in networks)


def _unwrap(address: IPAddress) -> IPAddress:
    return getattr(address, "ipv4_mapped", None) or address


# What the settings allow


@dataclass(frozen=True, slots=True)
class Target:
    """A host or a network that the settings name: it may be private, and may be reached without TLS."""

    name: str
    """In lower case; one that begins with a dot stands for all hosts below it. Empty for a network."""
    network: _Network | None
    port: int | None
    """None for all of them."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """A host, an address or a network, and behind a colon its port or ``*``. Raises ``ValueError``."""
        place, port = text, "443"
        if found := re.fullmatch(r"\[([^]]*:[^]]*)](?::(.*))?", text):
            place, port = found[1], "443" if found[2] is None else found[2]
        elif text.count(":") == 1:  # several are those of an IPv6 address
            place, port = text.split(":")
        if port != "*" and not (re.fullmatch(r"[0-9]{1,5}", port) and _is_usable_port(int(port))):
            raise ValueError(f"“{port}” is not a port for webhooks.")
        number = None if port == "*" else int(port)
        network: _Network | None = None
        with suppress(ValueError):
            network = ipaddress.ip_network(place, strict=False)
        if network is not None and _is_metadata(network.network_address):
            raise ValueError(f"“{text}” is a cloud metadata address: webhooks are never sent there.")
        if network is not None:
            return cls("", network, number)
        if not re.fullmatch(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?", place) or re.fullmatch(r"[\d.]+", place):
            raise ValueError(f"“{text}” is neither a host nor an address nor a network.")
        return cls(place.lower().removeprefix("*").rstrip("."), None, number)

    def is_host_of(self, url: URL) -> bool:
        """Whether this is the host of ``url``, or one above it that stands for all below."""
        # A name with umlauts is written in two ways.
        hosts = [(host or "").lower().rstrip(".") for host in (url.host, url.raw_host)]
        return bool(self.name) and any(
            host == self.name or (self.name.startswith(".") and host.endswith(self.name)) for host in hosts
        )


def is_permitted(url: URL, address: IPAddress) -> bool:
    """Whether a webhook for ``url`` may connect to ``address``. Never to where clouds keep secrets of a machine."""
    address = _unwrap(address)
    if _is_metadata(address):
        return False
    is_named = any(
        target.is_host_of(url) or (target.network is not None and address in target.network)
        for target in _list_targets(url)
    )
    return is_named or (url.scheme == "https" and is_public(address))


def _list_targets(url: URL) -> list[Target]:
    """What the settings name for the port of ``url``."""
    targets = _parse_targets(tuple(settings.TOOLFLOW_WEBHOOK_ALLOW))
    return [target for target in targets if target.port in (None, url.port)]


@lru_cache(maxsize=8)
def _parse_targets(entries: tuple[str, ...]) -> tuple[Target, ...]:
    return tuple(map(Target.parse, entries))
