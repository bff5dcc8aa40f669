"""What queue messages name: a drain, in a free slot of this host."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import close_old_connections

from runs.queue import draining
from runs.worker.event_loop import Drain


@contextmanager
def hold_slot() -> Iterator[bool]:
    """Hold one of this host's slots for drains; gives False if all are taken.

    A slot is a file lock, which the kernel frees when its process dies. There is one less than worker processes, which
    stays free for schedules, webhooks and bulk work.
    """
    for number in range(max(1, settings.TOOLFLOW_WORKERS - 1)):
        path = settings.TOOLFLOW_DATA_DIR / f"drain-{number}.lock"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield True
        finally:
            os.close(descriptor)
        return
    yield False


def drain(*, leaves_when_idle: bool = False) -> str:
    """Take a free slot of this host and work until the worker stops.

    ``leaves_when_idle`` ends it as soon as nothing is left to do. Gives a sentence for the queue's own log.
    """
    if draining.is_set():
        return "The worker stops."
    with hold_slot() as is_held:
        if not is_held:
            return "All slots of this host are taken."
        close_old_connections()
        executed = asyncio.run(Drain(leaves_when_idle=leaves_when_idle).run())
    return f"Worked on {executed} runs."
