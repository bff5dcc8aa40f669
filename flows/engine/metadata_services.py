"""Where clouds tell a machine its own secrets. Nothing of ours has anything to say there."""

from __future__ import annotations

import ipaddress
import socket

NAMES = frozenset(
    {"metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}
)
NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        # Nearly all are at a link-local address; some have others.
        (
            *("169.254.0.0/16", "fe80::/10", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
            *("fd00:ec2::/32", "fd00:42::42", "fd20:ce::254"),
        ),
    )
)
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48")))
"""Addresses of IPv6 that gateways turn into the one of IPv4 at their end."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class MetadataAddressError(OSError):
    """A name leads to such a service and nowhere else. ``address`` is where."""

    def __init__(self, address: str) -> None:
        super().__init__(f"clouds keep secrets of a machine at {address}")
        self.address = address


def is_metadata_service(host: str) -> bool:
    """Whether a host is one of them by its name, or by an address in any spelling (“2852039166”, “[::ffff:a9fe:a9fe]”).

    Names are not resolved.
    """
    host = host.strip("[]").rstrip(".").lower()
    if host in NAMES:
        return True
    address = _read_address(host)
    return address is not None and any(address in network for network in NETWORKS)


def is_metadata_network(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Whether a network has no addresses but those of such services."""
    return any(network.version == known.version and network.subnet_of(known) for known in NETWORKS)  # type: ignore[arg-type]  # of one version


def _read_address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            # What resolvers take for an address, however it is written.
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeEncodeError):
            return None
    return _find_inner(address) if isinstance(address, ipaddress.IPv6Address) else address


def _find_inner(address: ipaddress.IPv6Address) -> _Address:
    """The address of IPv4 that one of IPv6 stands for; itself if it stands for none."""
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
