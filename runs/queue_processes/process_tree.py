"""The queue's processes as the main process sees them: signals, the supervisor, and everything below it."""

from __future__ import annotations

import math
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

from django.conf import settings

from runs.queue import draining, force_quit
from runs.queue_processes.supervisor import run_supervisor

POLL_INTERVAL = 0.2
"""Seconds between checks of the flags and of the supervisor."""
REPEATED_SIGNAL_INTERVAL = 0.2
"""Seconds within which another signal is the same one: a terminal signals a whole group, and wrappers pass it on."""
FORCED_STOP_TIMEOUT = 10.0
"""Seconds to store results and hand runs back once calls are interrupted."""
EXIT_TIMEOUT = 10.0
"""Seconds for killed processes to be gone."""


class StopSignals:
    """From the moment it is made the first SIGTERM, SIGINT or SIGHUP sets ``draining`` and a later one ``force_quit``.

    The handlers do nothing else: what else a handler may do depends on what it interrupts. A prompt for the second
    signal is shown after ``REPEATED_SIGNAL_INTERVAL``.
    """

    def __init__(self) -> None:
        self._first_at: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Under nohup the end of the terminal stays ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            draining.set()
        elif now - self._first_at > REPEATED_SIGNAL_INTERVAL:
            force_quit.set()


class ProcessTreeError(RuntimeError):
    """The processes did not end in order; the sentence says how they did."""


class ProcessTree:
    """The supervisor and all below it; ``say`` prints a line for the operator.

    No connection of any kind may be open, and no thread running, when it is made: it forks.
    """

    def __init__(self, *, say: Callable[[str], None]) -> None:
        self._say = say
        # All processes below hold the other end: it is closed once the last of them is gone.
        self._lifeline, others_end = os.pipe()
        self._supervisor = multiprocessing.get_context("fork").Process(
            target=run_supervisor, args=(os.getpid(),), name="toolflow-supervisor"
        )
        self._supervisor.start()
        os.close(others_end)

    def run(self) -> None:
        """Return after an orderly stop, with all processes gone.

        Raises ``ProcessTreeError`` if the supervisor died, if it could not do its work, or if the stop took too long.
        """
        deadline = math.inf
        is_forced = is_late = False
        is_alive = True
        while is_alive:
            # Asked first: a supervisor that had nothing to wait for is gone before the line about the stop.
            is_alive = self._supervisor.is_alive()
            if draining.is_set() and deadline == math.inf:
                deadline = time.monotonic() + settings.TOOLFLOW_STOP_SECONDS
                time.sleep(REPEATED_SIGNAL_INTERVAL)
                self._say(
                    f"Worker stops: calls in flight have {settings.TOOLFLOW_STOP_SECONDS} s to end. "
                    "A second signal interrupts them."
                )
            if is_alive and time.monotonic() > deadline:
                if is_forced:
                    is_late = True
                    self._supervisor.kill()
                force_quit.set()
            if force_quit.is_set() and not is_forced:
                is_forced = True
                deadline = time.monotonic() + FORCED_STOP_TIMEOUT
                self._say("Worker stops at once: calls in flight are interrupted and repeated later.")
            if is_alive:
                self._supervisor.join(POLL_INTERVAL)
        select.select([self._lifeline], [], [], EXIT_TIMEOUT)
        os.close(self._lifeline)
        if is_late:
            raise ProcessTreeError(
                "The worker did not stop in time and was killed. Its runs go on at the next start; calls in flight are "
                "repeated."
            )
        code = self._supervisor.exitcode or 0
        if code < 0:
            raise ProcessTreeError(
                f"The supervisor process was killed (signal {-code}), and the worker's other processes with it. "
                "Start the worker again: nothing that was stored is lost."
            )
        if code > 0:
            raise ProcessTreeError("The supervisor process failed; its last lines above say why.")
