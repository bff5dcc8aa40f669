"""The supervisor: starts the workers and the dispatcher, and replaces those that die.

It uses neither database nor broker, so that nothing keeps it from that.
"""

from __future__ import annotations

import ctypes
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

from runs.queue_processes.dispatcher import Dispatcher
from runs.queue_processes.worker_process import TaskChannel, do_tasks
from runs.stop_flags import draining

logger = logging.getLogger(__name__)

POLL_INTERVAL = 0.25
"""Seconds between checks of the children; also bounds how often one that dies at once is started again."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# Loaded here, so that nothing is left to load between a fork and what follows it.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int, signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process ``signal_number`` when its parent, whose id is ``parent``, has died.

    To be called right after the fork, which must have been made by the parent's main thread: the kernel watches the
    thread. A parent that died before is noticed too, and ends this process at once. Linux only.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show of this process; the kernel keeps 15 characters. Linux only."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def run_supervisor(parent: int, recover: Callable[[], object], wake_task: str) -> None:
    """The supervisor's process, forked by ``parent``. Exits with status 0 after an orderly stop, else with 1."""
    die_with_parent(parent)
    name_process("toolflow-supervisor")
    # A signal to the whole group is for the main process; all others obey its flags. Children inherit this.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    supervisor = Supervisor(recover=recover, wake_task=wake_task)
    try:
        sys.exit(supervisor.run())
    finally:
        supervisor.kill_children()


class Supervisor:
    """``recover`` is called by each child before its work: it finds what those that died before left behind.
    ``wake_task`` names the task that makes sure that a drain is running.
    """

    def __init__(self, *, recover: Callable[[], object], wake_task: str) -> None:
        self._recover = recover
        self._wake_task = wake_task
        self._channel = TaskChannel()
        self._workers: list[BaseProcess] = []
        self._dispatcher: BaseProcess | None = None

    def run(self) -> int:
        """Replace children until the worker stops, and until all have then ended; gives the exit status."""
        status = 0
        try:
            for _ in range(Conf.WORKERS):
                self._start_worker()
            self._start_dispatcher()
            while not draining.is_set():
                time.sleep(POLL_INTERVAL)
                self._replace_dead()
        except OSError as error:
            logger.error("The system starts no more processes for the worker: %s", error)
            # What is under way may still end in order.
            draining.set()
            status = 1
        for child in self._children:
            child.join()
        return status

    def kill_children(self) -> None:
        """Kill what an error in the supervisor left running: it obeys no other signal."""
        for child in self._children:
            child.kill()
            child.join()

    @property
    def _children(self) -> list[BaseProcess]:
        return [*self._workers, *filter(None, [self._dispatcher])]

    def _replace_dead(self) -> None:
        for worker in list(self._workers):
            if not worker.is_alive():
                _log_death("Worker process", worker)
                self._workers.remove(worker)
                self._start_worker()
        if self._dispatcher is not None and not self._dispatcher.is_alive():
            _log_death("Dispatcher", self._dispatcher)
            self._start_dispatcher()

    def _start_worker(self) -> None:
        self._workers.append(self._fork("toolflow-worker", lambda: do_tasks(self._channel)))

    def _start_dispatcher(self) -> None:
        def dispatch() -> None:
            Dispatcher(self._channel, recover=self._try_recover, wake_task=self._wake_task).run()

        self._dispatcher = self._fork("toolflow-dispatcher", dispatch)

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
            logger.warning(
                "What dead processes left behind could not be reclaimed yet; a later sweep does so: %s", error
            )
        except Exception:
            logger.exception("What dead processes left behind could not be reclaimed.")
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
