"""What an installation that others rely on must not do. ``TOOLFLOW_ENV=production`` turns these rules on.

All that is wrong is said at once, a sentence each, before anything is served or run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

MIN_KEY_LENGTH = 50
MIN_KEY_CHARACTERS = 5
"""Different ones that a secret key must have, as Django asks for."""

EVERYWHERE = {"0.0.0.0/0", "::/0"}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}

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


def _look_at_key(key: str, *, name: str = "TOOLFLOW_SECRET_KEY") -> Iterator[str]:
    right = f"at least {MIN_KEY_LENGTH} random characters"
    if not key:
        yield f"TOOLFLOW_SECRET_KEY is not set, nor is its _FILE; it must have {right}, the same on all hosts."
    elif len(key) < MIN_KEY_LENGTH:
        yield f"{name} has {len(key)} characters; it must have {right}."
    elif len(set(key)) < MIN_KEY_CHARACTERS or key.startswith("django-insecure-"):
        yield f"{name} can be guessed; it must have {right}."


def _look_at_proxies(proxies: list[str], *, is_https: bool) -> Iterator[str]:
    if EVERYWHERE & set(proxies):
        yield (
            "TOOLFLOW_TRUSTED_PROXIES names all addresses, so that every client may say who it is; name the addresses "
            "of your proxies only."
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
