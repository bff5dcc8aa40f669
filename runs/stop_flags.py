"""Flags that the worker command raises and its worker processes see."""

from __future__ import annotations

import mmap


class StopFlag:
    """A flag in memory that a process shares with the processes it forks.

    One byte without a lock: a process that is killed leaves nothing behind that keeps others from reading it.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Raise the flag in all processes. Safe in a signal handler."""
        self._memory[0] = 1

    def clear(self) -> None:
        """Lower the flag in all processes."""
        self._memory[0] = 0

    def is_set(self) -> bool:
        return self._memory[0] == 1


draining = StopFlag()
"""The worker stops: calls in flight may end, and runs are handed back."""

force_quit = StopFlag()
"""The worker stops at once: calls in flight are interrupted."""
