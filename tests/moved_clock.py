"""Clocks that advance when a test sets them forward, or while it sleeps."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


class MovedClock:
    """The ``read_clock`` of a module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        self._seconds = 1_000.0
        monkeypatch.setattr(module, "read_clock", lambda: self._seconds)

    def go_on(self, seconds: float) -> None:
        """Let this number of seconds pass."""
        self._seconds += seconds


class SleptClock:
    """Time that passes only in sleep, in which ``on_sleep`` is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()
