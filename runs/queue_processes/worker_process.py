"""A worker process: takes tasks and does them one after the other, as django-q2 does."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from django.db import Error as AnyDatabaseError
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.monitor import save_task
from django_q.worker import worker

from runs.measuring import serve_worker_metrics
from runs.queue_processes.task_channel import TaskChannel

logger = logging.getLogger(__name__)


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


def do_tasks(channel: TaskChannel) -> None:
    """Do tasks until the worker stops or this process is recycled."""
    serve_worker_metrics()
    # django-q2's guard reads a timer to kill tasks that ignore their timeout; ours does not.
    worker(channel, TaskResults(), SimpleNamespace(value=-1, get_lock=nullcontext), Conf.TIMEOUT)
