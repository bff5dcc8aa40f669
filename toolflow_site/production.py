"""What an installation that others rely on must not do. ``TOOLFLOW_ENV=production`` turns these rules on.

All that is wrong is said at once, a sentence each, before anything is served or run.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from flows.webhook_address import Target

MIN_KEY_LENGTH = 50
MIN_KEY_CHARACTERS = 5
"""Different ones that a secret key must have, as Django asks for."""

MIN_TOKEN_LENGTH = 24

WIDEST = {4: 8, 6: 16}
"""Bits that a network must fix at least, by the version of its addresses: one that fixes fewer is nearly everything."""
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
INNER_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc", ".cluster.local")
"""Ends of names that no host of the internet has."""

MANIFEST = "staticfiles.json"


def refuse_what_is_unsafe(settings: Mapping[str, Any]) -> None:
    """Raise ``ImproperlyConfigured`` with a line for everything that is wrong in ``settings``, by their names."""
    if found := list(find_unsafe(settings)):
        count = "one setting" if len(found) == 1 else f"{len(found)} settings"
        lines = [f"TOOLFLOW_ENV is “production”, and {count} must be mended:", *(f"- {sentence}" for sentence in found)]
        raise ImproperlyConfigured("\n".join(lines))


def find_unsafe(settings: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each setting that production refuses. None of them tells a secret."""
    yield from _look_at_key(settings["SECRET_KEY"])
    for key in settings["SECRET_KEY_FALLBACKS"]:
        yield from _look_at_key(key, name="A key in TOOLFLOW_SECRET_KEY_FALLBACKS")
    if settings["DEBUG"]:
        yield "TOOLFLOW_DEBUG is on, which shows code and settings to whoever meets an error; take it out."
    if settings["TOOLFLOW_PROVIDER"] == "simulated" and not settings["TOOLFLOW_PROVIDER_NAMED"]:
        yield (
            "No provider is set, so that the simulated model would invent all outputs; set OPENAI_API_KEY (or "
            "OPENAI_API_KEY_FILE, OPENAI_BASE_URL), or TOOLFLOW_PROVIDER=simulated if that is what you want."
        )
    hosts = settings["TOOLFLOW_ALLOWED_HOSTS"]
    if not hosts:
        yield "TOOLFLOW_ALLOWED_HOSTS is not set; name the hosts under which browsers reach it: flows.example.com."
    elif "*" in hosts:
        yield (
            "TOOLFLOW_ALLOWED_HOSTS is “*”, which lets anybody choose the host that links lead to; name the hosts "
            "under which browsers reach it: flows.example.com."
        )
    yield from _look_at_proxies(settings["TOOLFLOW_TRUSTED_PROXIES"], is_https=settings["TOOLFLOW_HTTPS"])
    issuer = urlsplit(settings["TOOLFLOW_OIDC_ISSUER"])
    if issuer.scheme == "http" and issuer.hostname not in LOOPBACK:
        yield (
            "TOOLFLOW_OIDC_ISSUER begins with http://, so that whoever is on the way decides who signs in; its address "
            "must begin with https://."
        )
    if 0 < len(settings["TOOLFLOW_METRICS_TOKEN"]) < MIN_TOKEN_LENGTH:
        yield f"TOOLFLOW_METRICS_TOKEN can be guessed; it must have at least {MIN_TOKEN_LENGTH} random characters."
    yield from _look_at_addresses(settings)
    wide = [text for text in settings["TOOLFLOW_WEBHOOK_ALLOW"] if _is_wide(Target.parse(text).network)]
    if wide:
        yield (
            f"TOOLFLOW_WEBHOOK_ALLOW names {wide[0]}, so that webhooks may reach nearly all addresses, inner ones too; "
            "name the networks of your receivers only."
        )


def _look_at_addresses(settings: Mapping[str, Any]) -> Iterator[str]:
    """What is sent in the clear to the internet."""
    addresses = {"OPENAI_BASE_URL": settings["TOOLFLOW_OPENAI_BASE_URL"]}
    addresses |= {one.variable("BASE_URL"): one.base_url for one in settings["TOOLFLOW_PROVIDERS"].values()}
    sent = {name: (address, "the key and everything that models read") for name, address in addresses.items()}
    if settings["TOOLFLOW_TRACE_CONTENT"]:
        sent["TOOLFLOW_TRACES"] = (settings["TOOLFLOW_TRACES"], "what models read and wrote (TOOLFLOW_TRACE_CONTENT)")
    for name, (address, what) in sent.items():
        parts = urlsplit(address)
        host = (parts.hostname or "").rstrip(".")
        if parts.scheme == "http" and not _is_inner(host) and host not in settings["TOOLFLOW_PLAIN_HTTP_HOSTS"]:
            yield (
                f"{name} begins with http://, so that whoever is on the way to “{host}” reads {what}; its address must "
                "begin with https://, or TOOLFLOW_PLAIN_HTTP_HOSTS name the host if the way to it is yours."
            )


def _is_inner(host: str) -> bool:
    """Whether a host is this one, or one of an inner network by its address or its name. Names are not resolved."""
    if host in LOOPBACK or ("." not in host and ":" not in host):
        # A name without a dot is one of a container, or of the local network.
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host.endswith(INNER_NAMES)


def _is_wide(network: ipaddress.IPv4Network | ipaddress.IPv6Network | None) -> bool:
    """Whether a network has so many addresses that naming it means nothing."""
    if network is None:
        return False
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        return network.prefixlen - 96 < WIDEST[4]
    return network.prefixlen < WIDEST[network.version]


def _look_at_key(key: str, *, name: str = "TOOLFLOW_SECRET_KEY") -> Iterator[str]:
    right = f"at least {MIN_KEY_LENGTH} random characters"
    if not key:
        yield f"TOOLFLOW_SECRET_KEY is not set, nor is its _FILE; it must have {right}, the same on all hosts."
    elif len(key) < MIN_KEY_LENGTH:
        yield f"{name} has {len(key)} characters; it must have {right}."
    elif len(set(key)) < MIN_KEY_CHARACTERS or key.startswith("django-insecure-"):
        yield f"{name} can be guessed; it must have {right}."


def _look_at_proxies(proxies: list[str], *, is_https: bool) -> Iterator[str]:
    wide = [text for text in proxies if _is_wide(ipaddress.ip_network(text))]
    if wide:
        yield (
            f"TOOLFLOW_TRUSTED_PROXIES names {wide[0]}, so that nearly every client may say who it is; name the "
            "addresses of your proxies only."
        )
    elif is_https and not proxies:
        # Without one every page would be redirected to itself for ever.
        yield (
            "TOOLFLOW_TRUSTED_PROXIES is not set; name the proxy that does TLS, as 127.0.0.1, or set "
            "TOOLFLOW_HTTPS=false if there is none."
        )


def find_static_problem(settings: Any) -> str | None:
    """What keeps pages from finding their static files, in a sentence that says what to do; None if nothing does.

    Files that the collection lacks tell that it was made by another version.
    """
    from django.contrib.staticfiles.finders import get_finders

    if settings.WHITENOISE_USE_FINDERS:
        return None
    folder = Path(settings.STATIC_ROOT)
    what_to_do = "run “manage.py collectstatic --noinput”"
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["paths"]
    except (OSError, ValueError, KeyError):
        return f"The static files have not been collected into {folder}; {what_to_do}."
    missing = next((path for finder in get_finders() for path, _ in finder.list([]) if path not in known), None)
    if missing is not None:
        return f"The static files in {folder} are those of another version, without {missing}; {what_to_do}."
    return None
