"""The gate before each model call: rate limits apply here, outside of the planner.

The shell asks for a permit before an attempt begins, so that an attempt which waits for its turn has not begun yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from flows.engine.history import TokenUsage


class Permit(Protocol):
    """The right to make one call."""

    def release(self, usage: TokenUsage | None) -> None:
        """Give the permit back after the call; ``usage`` is what it used, None if that is not known."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """No permit in time: ask again after ``until``. ``sentence`` says what is waited for, for people."""

    until: datetime
    sentence: str


class CallGate(Protocol):
    """Gives permits for calls."""

    def try_enter(self, request: Mapping[str, Any]) -> Permit | None:
        """A permit for ``request`` if there is one at once, without waiting for anything; else None."""

    async def enter(self, request: Mapping[str, Any]) -> Permit | Throttled:
        """Wait for a permit for ``request`` for as long as the gate thinks fit, a few seconds at most."""


class OpenGate:
    """A gate without limits, and its own permit."""

    def try_enter(self, request: Mapping[str, Any]) -> Permit:
        """A permit, always."""
        return self

    async def enter(self, request: Mapping[str, Any]) -> Permit | Throttled:
        """A permit, always."""
        return self

    def release(self, usage: TokenUsage | None) -> None:
        """Nothing was counted."""
