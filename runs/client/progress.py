"""How far something is, said beside the results while a command goes on."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.status import Status

from runs.client.printing import clean, make_console, print_line

RARELY = 10.0
"""Seconds between two lines in a log that nobody watches."""


class Progress:
    """One line that changes on a terminal; elsewhere a line for each change, at most one in ``pause`` seconds.

    Nothing is said where ``is_quiet``: results go to the same terminal.
    """

    def __init__(self, *, pause: float = 0.0, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._console = make_console(is_error=True)
        self._pause = pause
        self._status: Status | None = None
        self._said = ""
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, line: str) -> None:
        """Say how far it is."""
        shown = clean(line)
        if self._is_quiet:
            return
        if self._console.is_terminal:
            if self._status is None:
                # Not every terminal can show the signs that are usual.
                spinner = "line" if self._console.options.ascii_only else "dots"
                self._status = Status(shown, console=self._console, spinner=spinner)
                self._status.start()
            self._status.update(shown)
        elif shown != self._said and time.monotonic() - self._said_at >= self._pause:
            print_line(shown, is_error=True)
            self._said, self._said_at = shown, time.monotonic()
