"""The guard: starts the workers and the pusher, and puts another in the place of one that dies.

It speaks with neither database nor broker, so that nothing keeps it from that.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

from django.db import Error as AnyDatabaseError
from django.db import connections
from django_q.conf import Conf

from runs.queue_processes.parentage import die_with_parent, name_process
from runs.queue_processes.pusher import Pusher
from runs.queue_processes.task_channel import TaskChannel
from runs.queue_processes.worker_process import do_tasks
from runs.stop_flags import stopping

logger = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds between looks at the children; also bounds how often one that dies at once is started again."""


def run_guard(parent: int, recover: Callable[[], object], wake_task: str) -> None:
    """The guard's process, forked by ``parent``. Exits with status 0 after an orderly stop and with 1 otherwise."""
    die_with_parent(parent)
    name_process("toolflow-guard")
    # A signal to the whole group is for the main process; all others obey its flags. Children inherit this.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    guard = Guard(recover=recover, wake_task=wake_task)
    try:
        sys.exit(guard.run())
    finally:
        guard.kill_children()


class Guard:
    """``recover`` is called by each child before its work: it finds what those that died before left behind.
    ``wake_task`` names the task that makes sure that a drain is running.
    """

    def __init__(self, *, recover: Callable[[], object], wake_task: str) -> None:
        self._recover = recover
        self._wake_task = wake_task
        self._channel = TaskChannel()
        self._workers: list[BaseProcess] = []
        self._pusher: BaseProcess | None = None

    def run(self) -> int:
        """Guard until told to stop, and until all children have then ended; gives the exit status."""
        status = 0
        try:
            for _ in range(Conf.WORKERS):
                self._start_worker()
            self._start_pusher()
            while not stopping.is_set():
                time.sleep(LOOK)
                self._replace_dead()
        except OSError as error:
            logger.error("The system starts no more processes for the worker: %s", error)
            # What is under way may still end in order.
            stopping.set()
            status = 1
        for child in self._children:
            child.join()
        return status

    def kill_children(self) -> None:
        """Kill what an error in the guard left running: it would be waited for, and obeys no other signal."""
        for child in self._children:
            child.kill()
            child.join()

    @property
    def _children(self) -> list[BaseProcess]:
        return [*self._workers, *filter(None, [self._pusher])]

    def _replace_dead(self) -> None:
        for worker in list(self._workers):
            if not worker.is_alive():
                _log_death("Worker process", worker)
                self._workers.remove(worker)
                self._start_worker()
        if self._pusher is not None and not self._pusher.is_alive():
            _log_death("The process that fetches messages,", self._pusher)
            self._start_pusher()

    def _start_worker(self) -> None:
        self._workers.append(self._fork("toolflow-worker", lambda: do_tasks(self._channel)))

    def _start_pusher(self) -> None:
        def push() -> None:
            Pusher(self._channel, recover=self._try_recover, wake_task=self._wake_task).run()

        self._pusher = self._fork("toolflow-pusher", push)

    def _fork(self, name: str, work: Callable[[], None]) -> BaseProcess:
        parent = os.getpid()

        def run() -> None:
            die_with_parent(parent)
            name_process(name)
            self._try_recover()
            work()

        child = multiprocessing.get_context("fork").Process(target=run, name=name)
        child.start()
        return child

    def _try_recover(self) -> None:
        try:
            self._recover()
        except AnyDatabaseError as error:
            logger.warning("What dead processes left behind could not be looked for, and is later: %s", error)
        except Exception:
            logger.exception("What dead processes left behind could not be looked for.")
        finally:
            connections.close_all()


def _log_death(what: str, child: BaseProcess) -> None:
    """Log the death of a child, unless it was recycled."""
    code = child.exitcode
    if code:
        how = f"was killed (signal {-code})" if code < 0 else f"ended with exit status {code}"
        if code == -signal.SIGALRM:
            how += " because its event loop hung"
        logger.warning("%s %s %s; another takes its place.", what, child.pid, how)
