"""A worker process: takes tasks and does them one after the other, as django-q2 does."""

from __future__ import annotations

import logging
import mmap
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import Error as AnyDatabaseError
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.monitor import save_task
from django_q.worker import worker

from runs.measuring import serve_worker_metrics
from runs.queue_processes.task_channel import TaskChannel
from runs.worker.watchdog import watchdog

logger = logging.getLogger(__name__)


class TaskTimer:
    """When a worker's task must be over, written by the worker and read by the guard.

    Stands in for the locked value that django-q2 counts down: what is kept is the moment, as one number of eight
    bytes, so that the guard has nothing to write and neither of them needs a lock.
    """

    IDLE = -1.0
    OVERDUE = 0.0

    def __init__(self) -> None:
        self._moment = memoryview(mmap.mmap(-1, 8)).cast("d")
        self._moment[0] = self.IDLE

    @property
    def value(self) -> float:
        """Seconds that the task still has; ``OVERDUE`` if none are left, a negative number if there is no task."""
        moment = self._moment[0]
        return max(self.OVERDUE, moment - time.monotonic()) if moment > 0 else moment

    @value.setter
    def value(self, value: float) -> None:
        self._moment[0] = time.monotonic() + value if value > 0 else value

    def get_lock(self) -> AbstractContextManager[None]:
        """What django-q2 holds while it writes; there is nothing to hold."""
        return nullcontext()


class TaskResults:
    """Where the results of a worker's tasks go. The worker sees to them itself: django-q2's monitor process, and the
    queue to it, would be one more of each that can be killed.
    """

    def __init__(self) -> None:
        self._broker = get_broker()

    def put(self, task: dict[str, Any]) -> None:
        """Acknowledge the message of a task that is done; keep and log one that failed."""
        if not task["success"]:
            logger.error("The task %s failed: %s", task["func"], task["result"])
        try:
            save_task(task, self._broker)
            if task.get("ack_id") and (task["success"] or task.get("ack_failure")):
                self._broker.acknowledge(task["ack_id"])
        except AnyDatabaseError as error:
            # It is delivered again, and a drain with nothing to do ends at once.
            logger.warning("A message of the queue could not be acknowledged: %s", error)


def do_tasks(channel: TaskChannel, timer: TaskTimer) -> None:
    """Do tasks until told to stop, or until it is time for a fresh process."""

    def put_off_timeout() -> None:
        timer.value = Conf.TIMEOUT
        signal.alarm(Conf.TIMEOUT)

    watchdog.attach(put_off_timeout)
    serve_worker_metrics()
    worker(channel, TaskResults(), timer, Conf.TIMEOUT)
