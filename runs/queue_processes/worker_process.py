"""A worker process: takes tasks and does them one after the other, as django-q2 does."""

from __future__ import annotations

import logging
import pickle
import select
import socket
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from django.db import Error as AnyDatabaseError
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.monitor import save_task
from django_q.worker import worker

from runs.observability.worker_metrics import serve_worker_metrics
from runs.queue import draining

logger = logging.getLogger(__name__)

POLL_INTERVAL = 0.25
"""Seconds between checks of the stop flag while a worker waits for a task."""
MAX_TASK_BYTES = 65_536
"""Size of a task, pickled. Ours have a few hundred bytes."""

STOP = "STOP"
"""What ``django_q.worker.worker`` takes for the end of its work."""


class TaskChannel:
    """A queue of tasks without a lock, which a process killed while reading or writing can't leave locked.

    It is a pair of sockets that keep the bounds of messages: the kernel hands each over whole, to one reader.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.settimeout(POLL_INTERVAL)

    def put(self, task: dict[str, Any]) -> None:
        """Hand a task to the worker that is free first. Raises ``ValueError`` if it is too large."""
        message = pickle.dumps(task)
        if (size := len(message)) > MAX_TASK_BYTES:
            raise ValueError(f"The task “{task['name']}” takes {size} bytes; at most {MAX_TASK_BYTES} are possible.")
        self._writer.send(message)

    def get(self) -> dict[str, Any] | str:
        """Wait for a task; gives ``STOP`` once the worker stops."""
        while not draining.is_set():
            try:
                task: dict[str, Any] = pickle.loads(self._reader.recv(MAX_TASK_BYTES))  # noqa: S301  # written by our dispatcher
            except TimeoutError:
                continue
            return task
        return STOP

    def is_empty(self) -> bool:
        """Whether no task waits for a worker."""
        return not select.select([self._reader], [], [], 0)[0]


class TaskResults:
    """Where the results of a worker's tasks go, in place of django-q2's monitor process and the queue to it."""

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
