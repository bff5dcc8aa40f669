"""The dispatcher: brings messages from the broker to the workers, and runs schedules."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.db import close_old_connections
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import Schedule
from django_q.scheduler import scheduler
from django_q.signing import SignedPackage

from runs.observability.log_events import Outage
from runs.queue import DRAIN_TASK, draining
from runs.queue_processes.worker_process import TaskChannel
from runs.worker.tasks import hold_slot

logger = logging.getLogger(__name__)

SCHEDULE_INTERVAL = 30.0
"""Seconds between runs of the schedules that are due."""
POLL_INTERVAL = 0.05
"""Seconds between checks whether a worker has taken the task that waits."""
RETRY_INTERVAL = 1.0
"""Seconds before the broker is asked again after it did not answer."""
DRAIN_INTERVAL = 1.0
"""Seconds between checks for a free slot: a drain starts there even if no message can be sent."""


class Dispatcher:
    """``recover`` is called when the broker answers again: messages may have been lost."""

    def __init__(self, channel: TaskChannel, *, recover: Callable[[], object]) -> None:
        self._channel = channel
        self._recover = recover
        self._broker = get_broker()
        self._database_outage = Outage("The database")
        self._broker_outage = Outage("Redis") if "redis" in settings.Q_CLUSTER else self._database_outage
        self._drain_at = time.monotonic()
        self._schedules_at = self._drain_at + SCHEDULE_INTERVAL

    def run(self) -> None:
        """Work until the worker stops."""
        while not draining.is_set():
            if time.monotonic() >= self._schedules_at:
                self._schedules_at = time.monotonic() + SCHEDULE_INTERVAL
                self._run_schedules()
            # None is fetched before a worker is free for it: the broker's clock for a message starts then, or the
            # message is off the broker, and gone if this host is.
            if not self._channel.is_empty():
                time.sleep(POLL_INTERVAL)
            elif time.monotonic() >= self._drain_at:
                self._drain_at = time.monotonic() + DRAIN_INTERVAL
                self._start_drain()
            else:
                self._dispatch_next()

    def _dispatch_next(self) -> None:
        try:
            for ack_id, package in self._broker.dequeue() or ():
                self._dispatch(ack_id, package)
        except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
            self._broker_outage.note(error)
            time.sleep(RETRY_INTERVAL)
        else:
            if self._broker_outage.end():
                self._recover()

    def _dispatch(self, ack_id: object, package: str) -> None:
        try:
            task = SignedPackage.loads(package)
            is_wake_up = task.get("func") == DRAIN_TASK
            if not is_wake_up:
                task.update(cluster=Conf.CLUSTER_NAME, ack_id=ack_id)
                self._channel.put(task)
        except Exception as error:  # noqa: BLE001  # a message may hold anything
            logger.error(
                "A message of the queue can't be read, and is dropped. (%s) All hosts need the same version of "
                "ToolFlow and the same TOOLFLOW_SECRET_KEY.",
                str(error) or type(error).__name__,
            )
            self._broker.fail(ack_id)
            return
        if is_wake_up:
            # Acknowledged before the drain, which has no end: the Run table is the truth.
            self._broker.acknowledge(ack_id)
            self._start_drain()

    def _start_drain(self) -> None:
        """Start a drain if this host has a free slot."""
        if self._database_outage.goes_on:
            return
        with hold_slot() as is_free:
            if not is_free:
                return
        task = {"id": uuid.uuid4().hex, "name": "drain", "func": DRAIN_TASK, "args": (), "kwargs": {}, "timeout": -1}
        self._channel.put({**task, "started": timezone.now()})

    def _run_schedules(self) -> None:
        if self._broker_outage.goes_on:
            return
        close_old_connections()
        try:
            # Asked first because the scheduler logs a whole traceback when the database is away.
            Schedule.objects.exists()
        except AnyDatabaseError as error:
            self._database_outage.note(error)
            return
        if self._database_outage.end():
            self._recover()
        scheduler(broker=self._broker)
