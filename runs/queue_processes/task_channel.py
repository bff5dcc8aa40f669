"""The way of tasks from the pusher to the workers."""

from __future__ import annotations

import pickle
import select
import socket
from typing import Any

from runs.stop_flags import stopping

LOOK = 0.25
"""Seconds between a waiting worker's looks at the stop flag."""
MAX_BYTES = 65_536
"""Size of a task, pickled. Ours have a few hundred bytes."""

STOP = "STOP"
"""What ``django_q.worker.worker`` takes for the end of its work."""


class TaskChannel:
    """A queue of tasks without any lock: whoever is killed while reading or writing keeps nobody else from it.

    It is a pair of sockets that keep the bounds of messages. The kernel hands each message over whole, to one reader,
    or not at all; a pipe would need a lock so that two readers don't get half of one each.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.settimeout(LOOK)

    def put(self, task: dict[str, Any]) -> None:
        """Hand a task to whichever worker is free first. Raises ``ValueError`` if it is too large."""
        message = pickle.dumps(task)
        if len(message) > MAX_BYTES:
            raise ValueError(f"The task “{task['name']}” takes {len(message)} bytes; at most {MAX_BYTES} are possible.")
        self._writer.send(message)

    def get(self) -> dict[str, Any] | str:
        """Wait for a task; gives ``STOP`` once the worker is told to stop."""
        while not stopping.is_set():
            try:
                task: dict[str, Any] = pickle.loads(self._reader.recv(MAX_BYTES))  # noqa: S301  # written by our pusher
            except TimeoutError:
                continue
            return task
        return STOP

    def is_empty(self) -> bool:
        """Whether no task waits for a worker."""
        return not select.select([self._reader], [], [], 0)[0]
