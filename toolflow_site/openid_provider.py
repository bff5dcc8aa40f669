"""Asking the provider of OpenID Connect: by few at a time, who keep nobody else from being answered."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import BoundedSemaphore, Lock
from time import monotonic
from typing import Any

import requests
from django.conf import settings

from runs.request_places import stepping_aside

TIMEOUT = 10
"""Seconds that the provider may take for one answer."""
REMEMBERED = 3600
"""Seconds for which the provider’s description of itself holds."""
RESPITE = 10
"""Seconds for which a provider that did not describe itself isn’t asked again."""
MOST_ASKING = 8
"""Requests of one process that wait for the provider at a time."""

_PLACES = BoundedSemaphore(MOST_ASKING)

logger = logging.getLogger(__name__)


class ProviderBusyError(Exception):
    """As many requests as may wait for the provider do so already."""


@contextmanager
def asking_provider() -> Iterator[None]:
    """Let others be answered while the provider is asked. Raises ``ProviderBusyError``."""
    if not _PLACES.acquire(blocking=False):
        raise ProviderBusyError
    try:
        # Given back only with a place to go on in: so there are never more threads than places of both kinds.
        with stepping_aside():
            yield
    finally:
        _PLACES.release()


class Provider:
    """What the provider ``issuer`` says of itself, asked for when it is needed first."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._found: Mapping[str, Any] = {}
        self._asked_again_at = 0.0
        self._lock = Lock()

    @property
    def is_outdated(self) -> bool:
        """Whether the provider is asked by whoever wants to find something now."""
        return monotonic() >= self._asked_again_at

    def find(self, name: str) -> str:
        """An entry such as ``token_endpoint``; what was said before if the provider does not answer now.

        Raises ``requests.RequestException`` or ``ValueError``.
        """
        # One asks. The others wait for that only if there is nothing that was said before.
        if self.is_outdated and self._lock.acquire(blocking=not self._found):
            try:
                if self.is_outdated:
                    self._ask()
            finally:
                self._lock.release()
        if not self._found:
            raise ValueError(f"{self._issuer} did not describe itself a moment ago.")
        value = self._found.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{self._issuer} does not say what its {name} is.")
        if self._issuer.startswith("https:") and not value.startswith("https:"):
            raise ValueError(f"The {name} of {self._issuer} is not reached by HTTPS.")
        return value

    def _ask(self) -> None:
        try:
            self._found = self._fetch()
        except (requests.RequestException, ValueError) as error:
            self._asked_again_at = monotonic() + RESPITE
            if not self._found:
                raise
            logger.warning("%s does not describe itself: %s.", self._issuer, type(error).__name__)
        else:
            self._asked_again_at = monotonic() + REMEMBERED

    def _fetch(self) -> Mapping[str, Any]:
        issuer = self._issuer.rstrip("/")
        answer = requests.get(f"{issuer}/.well-known/openid-configuration", timeout=TIMEOUT)
        answer.raise_for_status()
        found = answer.json()
        if not isinstance(found, dict) or str(found.get("issuer", "")).rstrip("/") != issuer:
            raise ValueError(f"{self._issuer} does not describe itself as the issuer.")
        return found


def find_provider() -> Provider:
    """The provider of this installation."""
    return _make_provider(settings.TOOLFLOW_OIDC_ISSUER)


_make_provider = cache(Provider)
