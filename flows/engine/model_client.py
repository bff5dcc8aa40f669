"""The seam to the model: what the engine needs of a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from flows.engine.providers import Api, Provider, Providers


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a provider answered with HTTP 200: the response body as parsed JSON, and its request id."""

    body: Mapping[str, Any]
    request_id: str | None = None


class ModelClient(Protocol):
    """Sends one request and returns what came back.

    A client with an attribute ``provider`` (a ``Provider``) is sent what models take there, chat completions or
    Responses as the provider's ``api`` says; one without is sent chat completions.
    """

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        """Send ``request`` (the exact JSON body) once, without retries of its own.

        ``idempotency_key`` is the same whenever the same attempt is sent again; ``timeout`` is in seconds and
        covers the whole call. Raises ``ModelError`` for everything that is no readable answer; its code says whether
        the call is repeated. So it is after ``TimeoutError`` and ``ConnectionError``. Anything else that it raises
        ends the run as errored, with all attempts kept.
        """
        ...

    async def close(self) -> None:
        """Give back connections. The client can't be used afterwards."""
        ...


CUSTOM_PROVIDER = Provider(api=Api.CHAT, api_key="its-own")
"""What is known of a client that names no provider."""


def find_providers(client: ModelClient, clients: Mapping[str, ModelClient]) -> Providers:
    """The providers that these clients ask: the default one, and others by name."""
    named = {name: replace(_find_provider(other), name=name) for name, other in clients.items()}
    return Providers(_find_provider(client), named)


def _find_provider(client: ModelClient) -> Provider:
    return getattr(client, "provider", None) or CUSTOM_PROVIDER


def make_idempotency_key(*, run_id: str, step: int, number: int, started_at: datetime) -> str:
    """Return what names one attempt to a provider, so that a request that arrives twice is answered once.

    It ends with run, step and number of the attempt. The time is part of it: after an older copy of a database was put
    back, another run has the number of one that the provider may remember.
    """
    return f"{int(started_at.timestamp() * 1000):x}-{run_id}-{step}-{number}"
