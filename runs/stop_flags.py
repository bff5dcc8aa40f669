"""Flags that the worker command raises and its worker processes see."""

from __future__ import annotations

import mmap


class StopFlag:
    """A flag in memory that a process shares with the processes it forks.

    One byte and no lock: nothing that a process leaves behind when it is killed can keep others from reading it.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Raise the flag, in all processes. Safe in a signal handler."""
        self._memory[0] = 1

    def clear(self) -> None:
        """Lower the flag, in all processes."""
        self._memory[0] = 0

    def is_set(self) -> bool:
        """Whether the flag is raised."""
        return self._memory[0] == 1


stopping = StopFlag()
"""The worker stops: calls under way are allowed to end, and runs are handed back."""

hurrying = StopFlag()
"""The worker stops at once: calls under way are broken off."""
