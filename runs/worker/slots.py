"""The slots of a host: how many drains it may have at a time."""

from __future__ import annotations

import fcntl
import os
from typing import Self

from django.conf import settings


class Slot:
    """One of this host's slots: a file lock, which the kernel frees when its process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls) -> Self | None:
        """A free slot; None if all are taken.

        There is one less than worker processes, so that sweeps and schedules always find a process.
        """
        for number in range(max(1, settings.TOOLFLOW_WORKERS - 1)):
            path = settings.TOOLFLOW_DATA_DIR / f"drain-{number}.lock"
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return cls(descriptor)
        return None

    @classmethod
    def is_any_free(cls) -> bool:
        """Whether a drain could begin on this host now."""
        slot = cls.take()
        if slot is None:
            return False
        slot.release()
        return True

    def release(self) -> None:
        """Let another drain have it."""
        os.close(self._descriptor)
