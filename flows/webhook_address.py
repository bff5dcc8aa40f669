"""What an address of a webhook looks like. Where it may lead is for ``webhook_allowance``."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from yarl import URL

MOST_BYTES = 2_000
"""Of an address in UTF-8."""
_LOW_PORTS = (80, 443)
_FIRST_FREE_PORT, _LAST_PORT = 1_025, 65_535
_EXAMPLE = "such as https://example.com/hooks/toolflow"


def find_problem(address: str) -> str:
    """Why nothing can be sent to ``address``, in one sentence; empty if it can be tried."""
    if re.search(r"[\s\\\x00-\x1f\x7f-\x9f\ud800-\udfff]", address):
        return f"The address has spaces, line breaks or backslashes in it; write one {_EXAMPLE}."
    if len(address.encode()) > MOST_BYTES:
        return f"The address is longer than {MOST_BYTES:,} bytes."
    try:
        # The same reading as that of the client which connects: two readers could mean two hosts.
        url = URL(address)
        host, port = url.host, url.port
    except ValueError as error:
        return f"This is no address ({str(error).rstrip('.')}); write one {_EXAMPLE}."
    if url.scheme not in ("http", "https"):
        return f"The address must begin with https:// or http://, {_EXAMPLE}."
    if not host:
        return f"The address names no host; write one {_EXAMPLE}."
    if ":" in host and not _is_address(host):
        return f"This is no address: only one of IPv6 stands in brackets; write one {_EXAMPLE}."
    # Resolvers read such hosts as addresses of IPv4 in several ways, and clients don't connect to them.
    if re.search(r"(^|\.)([0-9]+|0x[0-9a-f]*)\.?$", host.lower()) and not _is_address(host.removesuffix(".")):
        return f"“{host}” is not a valid host; an IPv4 address has four decimal numbers, such as 192.0.2.7."
    if "@" in url.raw_authority:
        return "The address must not hold a user name or a password: receivers know ToolFlow by its signature."
    if port is None or not is_usable_port(port):
        return f"The port {port} is not one for webhooks: use 80, 443 or one above {_FIRST_FREE_PORT - 1}."
    return ""


def is_usable_port(port: int) -> bool:
    """Whether webhooks may go to a port: what listens on others speaks no HTTP."""
    return port in _LOW_PORTS or _FIRST_FREE_PORT <= port <= _LAST_PORT


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def hide_path(address: str) -> str:
    """An address without what only its owner may know: whatever comes after the host is “…”."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…" if address else ""


def validate_address(address: str) -> None:
    """Raise ``ValidationError`` with the sentence of ``find_problem`` if there is one."""
    if problem := find_problem(address):
        raise ValidationError(problem)
