"""At most one sender on a host, so that receivers which hang keep at most one worker process busy."""

from __future__ import annotations

import fcntl
import os
from typing import Self

from django.conf import settings


class SenderLock:
    """The right to send: a file lock, which the kernel frees when its process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls) -> Self | None:
        """The lock of this host; None if somebody sends already."""
        path = settings.TOOLFLOW_DATA_DIR / "webhooks.lock"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(descriptor)

    @classmethod
    def is_taken(cls) -> bool:
        """Whether somebody sends on this host now."""
        lock = cls.take()
        if lock is None:
            return True
        lock.release()
        return False

    def release(self) -> None:
        """Let another sender begin. Doing so twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
