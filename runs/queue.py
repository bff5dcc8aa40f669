"""Messages to workers: that runs are queued, and that they stop.

A message says only “make sure that a drain is running”; the Run table says what there is to do.
"""

from __future__ import annotations

import asyncio
import logging
import mmap

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import OrmQ
from django_q.tasks import async_task

from runs.observability.log_events import Outage

logger = logging.getLogger(__name__)

DRAIN_TASK = "runs.worker.tasks.drain"
"""Sent with ``timeout=-1``: a drain has no end but the worker's."""

REDIS_RETRY_INTERVAL = 5.0
"""Seconds between tries to subscribe; meanwhile a drain polls for queued runs as if there were no Redis."""

_outage = Outage("The queue's broker")


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


def wake_worker() -> None:
    """Make sure that some worker polls for queued runs; one message is enough for many runs.

    With the database as broker the message is part of the caller's transaction, so that neither is kept alone. With
    Redis it is sent on commit; if the broker is away the sweep finds the run.
    """
    if "orm" not in settings.Q_CLUSTER:
        transaction.on_commit(_send_message)
        return
    with transaction.atomic():
        # Locked, so that no worker takes the message off the queue before the caller's rows can be seen.
        messages = OrmQ.objects.select_for_update(skip_locked=True)
        if messages.filter(key=get_broker().list_key, lock__lte=timezone.now()).first() is None:
            async_task(DRAIN_TASK, timeout=-1)


def _send_message() -> None:
    try:
        broker = get_broker()
        # A drain that listens is at work already, and starts the run without the way through the queue.
        broker.connection.publish(_name_channel(), "")
        if not broker.queue_size():
            async_task(DRAIN_TASK, broker=broker, timeout=-1)
    except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
        _outage.note(error)
    else:
        _outage.end()


def _name_channel() -> str:
    return f"{settings.Q_CLUSTER['name']}:runs-queued"


class WakeChannel:
    """Sets ``woken`` whenever a run is queued, where there is a Redis that says so."""

    def __init__(self, woken: asyncio.Event) -> None:
        self.is_open = False
        """Whether it does so now."""
        self._woken = woken

    async def listen(self) -> None:
        """Listen until cancelled. Returns at once where the database is the broker."""
        address = settings.Q_CLUSTER.get("redis")
        if address is None:
            return
        # Only an installation on several hosts has this package.
        from redis import RedisError
        from redis.asyncio import Redis

        while True:
            client = Redis.from_url(address) if isinstance(address, str) else Redis(**address)
            try:
                async with client, client.pubsub() as channel:
                    await channel.subscribe(_name_channel())
                    async for _ in channel.listen():
                        # The first message says that the subscription holds.
                        self.is_open = True
                        self._woken.set()
            except (RedisError, OSError) as error:
                # The queue's own processes warn of it; each drain would do so again.
                logger.info("Redis is unreachable; polling for queued runs instead: %s", error)
            self.is_open = False
            await asyncio.sleep(REDIS_RETRY_INTERVAL)
