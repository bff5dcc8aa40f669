"""The queue's processes as the main process sees them: the guard, and everything below it."""

from __future__ import annotations

import math
import multiprocessing
import os
import select
import time
from collections.abc import Callable

from django.conf import settings

from runs.queue_processes.guard import run_guard
from runs.queue_processes.stop_signals import ECHO
from runs.stop_flags import hurrying, stopping

LOOK = 0.2
"""Seconds between looks at the flags and at the guard."""
FORCED_STOP_TIMEOUT = 10.0
"""Seconds to store results and hand runs back once calls are interrupted."""
EXIT_TIMEOUT = 10.0
"""Seconds for killed processes to be gone."""


class ProcessTreeError(RuntimeError):
    """The processes did not end in order; the sentence says how they did."""


class ProcessTree:
    """``recover`` and ``wake_task`` are explained at ``Guard``; ``say`` tells the operator something.

    No connection of any kind may be open, and no thread running, when it is made: it forks.
    """

    def __init__(self, *, recover: Callable[[], object], wake_task: str, say: Callable[[str], None]) -> None:
        self._say = say
        # All processes below hold the other end: it is closed once the last of them is gone, whoever their parent is.
        self._lifeline, others_end = os.pipe()
        self._guard = multiprocessing.get_context("fork").Process(
            target=run_guard, args=(os.getpid(), recover, wake_task), name="toolflow-guard"
        )
        self._guard.start()
        os.close(others_end)

    def run(self) -> None:
        """Return after an orderly stop, with all processes gone.

        Raises ``ProcessTreeError`` if the guard died, if it could not do its work, or if the stop took too long.
        """
        deadline = math.inf
        is_forced = is_late = False
        is_alive = True
        while is_alive:
            # Asked first: a guard that had nothing to wait for is gone before the stop was told.
            is_alive = self._guard.is_alive()
            if stopping.is_set() and deadline == math.inf:
                deadline = time.monotonic() + settings.TOOLFLOW_STOP_SECONDS
                time.sleep(ECHO)
                self._say(
                    f"Worker stops: calls in flight have {settings.TOOLFLOW_STOP_SECONDS} s to end. "
                    "A second signal interrupts them."
                )
            if is_alive and time.monotonic() > deadline:
                if is_forced:
                    is_late = True
                    self._guard.kill()
                hurrying.set()
            if hurrying.is_set() and not is_forced:
                is_forced = True
                deadline = time.monotonic() + FORCED_STOP_TIMEOUT
                self._say("Worker stops at once: calls in flight are interrupted and repeated later.")
            if is_alive:
                self._guard.join(LOOK)
        select.select([self._lifeline], [], [], EXIT_TIMEOUT)
        os.close(self._lifeline)
        if is_late:
            raise ProcessTreeError(
                "The worker did not stop in time and was killed. Its runs go on at the next start; calls in flight are "
                "repeated."
            )
        code = self._guard.exitcode or 0
        if code < 0:
            raise ProcessTreeError(
                f"The queue's guard process was killed (signal {-code}), and the worker's other processes with it. "
                "Start the worker again: nothing that was stored is lost."
            )
        if code > 0:
            raise ProcessTreeError("The queue's guard process failed; its last lines above say why.")
