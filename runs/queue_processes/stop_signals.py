"""Signals that ask for a stop."""

from __future__ import annotations

import signal
import time
from types import FrameType

from runs.stop_flags import hurrying, stopping

ECHO = 0.2
"""Seconds within which another signal is the same one: a terminal signals a whole group, and wrappers pass it on."""


class StopSignals:
    """From the moment it is made the first SIGTERM, SIGINT or SIGHUP sets ``stopping`` and a later one ``hurrying``.

    The handlers do nothing else: what else a handler may do depends on what it interrupts. Whoever invites the second
    signal waits for ``ECHO`` first.
    """

    def __init__(self) -> None:
        self._first_at: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Whoever starts us with nohup wants the end of the terminal ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            stopping.set()
        elif now - self._first_at > ECHO:
            hurrying.set()
