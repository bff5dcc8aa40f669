"""A clock that goes on when it is told to."""

from __future__ import annotations

from types import ModuleType

import pytest


class MovedClock:
    """The ``read_clock`` of a module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        self._seconds = 1_000.0
        monkeypatch.setattr(module, "read_clock", lambda: self._seconds)

    def go_on(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._seconds += seconds
