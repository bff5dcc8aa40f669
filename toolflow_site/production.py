"""What an installation that others rely on must not do. ``TOOLFLOW_ENV=production`` turns these rules on.

All problems are listed at once, a sentence each, before anything is served or run.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from runs.webhooks.addresses import Target

MIN_KEY_LENGTH, MIN_KEY_CHARACTERS = 50, 5
"""Characters of a secret key, and different ones among them, as ``check --deploy`` asks for."""
MIN_TOKEN_LENGTH = 24
MIN_PREFIX_LENGTH = {4: 8, 6: 16}
"""Bits that a network must fix, by the version of its addresses: one that fixes fewer is nearly everything."""
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
INNER_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc", ".cluster.local")
"""Ends of names that no host of the internet has."""


def require_safe(settings: Mapping[str, Any]) -> None:
    """Raise ``ImproperlyConfigured`` with a line for each problem of ``settings``."""
    if problems := list(list_problems(settings)):
        lines = [f"TOOLFLOW_ENV is “production”; settings to fix: {len(problems)}", *(f"- {one}" for one in problems)]
        raise ImproperlyConfigured("\n".join(lines))


def list_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each setting that production refuses. None of them holds a secret."""
    keys = {"TOOLFLOW_SECRET_KEY": settings["SECRET_KEY"]}
    keys |= {f"Key {n} of TOOLFLOW_SECRET_KEY_FALLBACKS": k for n, k in enumerate(settings["SECRET_KEY_FALLBACKS"], 1)}
    for name, key in keys.items():
        if len(key) < MIN_KEY_LENGTH or len(set(key)) < MIN_KEY_CHARACTERS or key.startswith("django-insecure-"):
            yield f"{name} is not set, is too short or can be guessed; it needs {MIN_KEY_LENGTH} random characters."
    if settings["DEBUG"]:
        yield "TOOLFLOW_DEBUG is on, which shows code and settings on error pages; remove it."
    if settings["TOOLFLOW_PROVIDER"] == "simulated" and not settings["TOOLFLOW_PROVIDER_NAMED"]:
        yield (
            "No provider is set, so that the simulated model would invent all outputs; set OPENAI_API_KEY (or "
            "OPENAI_API_KEY_FILE, OPENAI_BASE_URL), or TOOLFLOW_PROVIDER=simulated if that is what you want."
        )
    if not settings["TOOLFLOW_ALLOWED_HOSTS"] or "*" in settings["TOOLFLOW_ALLOWED_HOSTS"]:
        yield "TOOLFLOW_ALLOWED_HOSTS must name the hosts under which browsers reach it: flows.example.com, not “*”."
    if settings["TOOLFLOW_HTTPS"] and not settings["TOOLFLOW_TRUSTED_PROXIES"]:
        # Without one every page would be redirected to itself for ever.
        yield (
            "TOOLFLOW_TRUSTED_PROXIES is not set; name the proxy that does TLS, as 127.0.0.1, or set "
            "TOOLFLOW_HTTPS=false if there is none."
        )
    for name, networks in (
        ("TOOLFLOW_TRUSTED_PROXIES", [ipaddress.ip_network(text) for text in settings["TOOLFLOW_TRUSTED_PROXIES"]]),
        ("TOOLFLOW_WEBHOOK_ALLOW", [Target.parse(text).network for text in settings["TOOLFLOW_WEBHOOK_ALLOW"]]),
    ):
        if wide := next((network for network in networks if network is not None and _is_wide(network)), None):
            yield f"{name} names {wide}, which covers nearly all addresses; name only your own proxies and receivers."
    issuer = urlsplit(settings["TOOLFLOW_OIDC_ISSUER"])
    if issuer.scheme == "http" and issuer.hostname not in LOOPBACK:
        yield "TOOLFLOW_OIDC_ISSUER must begin with https://: without TLS, sign-ins can be forged on the network."
    if 0 < len(settings["TOOLFLOW_METRICS_TOKEN"]) < MIN_TOKEN_LENGTH:
        yield f"TOOLFLOW_METRICS_TOKEN can be guessed; it must have at least {MIN_TOKEN_LENGTH} random characters."
    yield from _list_plain_addresses(settings)


def _list_plain_addresses(settings: Mapping[str, Any]) -> Iterator[str]:
    """Keys and content that are sent to the internet without TLS."""
    addresses = {"OPENAI_BASE_URL": settings["TOOLFLOW_OPENAI_BASE_URL"]}
    addresses |= {one.variable("BASE_URL"): one.base_url for one in settings["TOOLFLOW_PROVIDERS"].values()}
    if settings["TOOLFLOW_TRACE_CONTENT"]:
        addresses["TOOLFLOW_TRACES"] = settings["TOOLFLOW_TRACES"]
    for name, address in addresses.items():
        parts = urlsplit(address)
        host = (parts.hostname or "").rstrip(".")
        if parts.scheme == "http" and not _is_inner(host) and host not in settings["TOOLFLOW_PLAIN_HTTP_HOSTS"]:
            yield (
                f"{name} begins with http://, so keys and texts are sent to “{host}” without TLS; use "
                "https://, or name the host in TOOLFLOW_PLAIN_HTTP_HOSTS if you control the network."
            )


def _is_inner(host: str) -> bool:
    """Whether a host is this one, or one of an inner network by its address or its name. Names are not resolved."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        # A name without a dot is one of a container, or of the local network.
        return "." not in host or host.endswith(INNER_NAMES)


def _is_wide(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Whether a network is too large for its name to mean anything."""
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        return network.prefixlen - 96 < MIN_PREFIX_LENGTH[4]
    return network.prefixlen < MIN_PREFIX_LENGTH[network.version]


def find_static_problem(settings: Any) -> str | None:
    """What keeps pages from finding their static files, in a sentence that says what to do; None if nothing does.

    Files that the collection lacks show that it was made by another version.
    """
    from django.contrib.staticfiles.finders import get_finders

    if settings.WHITENOISE_USE_FINDERS:
        return None
    folder = Path(settings.STATIC_ROOT)
    try:
        known = json.loads((folder / "staticfiles.json").read_text(encoding="utf-8"))["paths"]
    except (OSError, ValueError, KeyError):
        return f"The static files have not been collected into {folder}; run “manage.py collectstatic --noinput”."
    missing = next((path for finder in get_finders() for path, _ in finder.list([]) if path not in known), None)
    if missing is None:
        return None
    return f"{folder} has no {missing}: it is of another version; run “manage.py collectstatic --noinput”."
