"""What queue messages name."""

from __future__ import annotations

import asyncio

from django.db import close_old_connections

from runs.stop_flags import stopping
from runs.worker.event_loop import Drain
from runs.worker.slots import Slot


def drain(*, leaves_when_idle: bool = False) -> str:
    """Take a free slot of this host and work until the worker stops.

    ``leaves_when_idle`` ends it as soon as nothing is left to do. Gives a sentence for the queue's own log.
    """
    if stopping.is_set():
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
