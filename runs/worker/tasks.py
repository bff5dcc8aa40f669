"""What queue messages name: a drain, in a free slot of this host."""

from __future__ import annotations

import asyncio
import fcntl
import os
from typing import Self

from django.conf import settings
from django.db import close_old_connections

from runs.stop_flags import draining
from runs.worker.event_loop import Drain


class Slot:
    """One of this host's slots for drains: a file lock, which the kernel frees when its process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls) -> Self | None:
        """A free slot; None if all are taken.

        There is one less than worker processes, which stays free for schedules, webhooks and bulk work.
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
        """Whether a drain could start on this host now."""
        slot = cls.take()
        if slot is None:
            return False
        slot.release()
        return True

    def release(self) -> None:
        """Let another drain have it."""
        os.close(self._descriptor)


def drain(*, leaves_when_idle: bool = False) -> str:
    """Take a free slot of this host and work until the worker stops.

    ``leaves_when_idle`` ends it as soon as nothing is left to do. Gives a sentence for the queue's own log.
    """
    if draining.is_set():
        return "The worker stops."
    slot = Slot.take()
    if slot is None:
        return "All slots of this host are taken."

    try:
        close_old_connections()
        executed = asyncio.run(Drain(leaves_when_idle=leaves_when_idle).run())
    finally:
        slot.release()
    return f"Worked on {executed} runs."
