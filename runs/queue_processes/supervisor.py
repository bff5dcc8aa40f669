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
from multiprocessing.process import BaseProcess

from django.db import Error as AnyDatabaseError
from django.db import connections
from django_q.conf import Conf

from runs.queue import draining
from runs.queue_processes.dispatcher import Dispatcher
from runs.queue_processes.worker_process import TaskChannel, do_tasks
from runs.sweep import sweep

logger = logging.getLogger(__name__)

POLL_INTERVAL = 0.25
"""Seconds between checks of the children; also bounds how often one that dies at once is started again."""

WORKER, DISPATCHER = "toolflow-worker", "toolflow-dispatcher"

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


def run_supervisor(parent: int) -> None:
    """The supervisor's process, forked by ``parent``. Exits with status 0 after an orderly stop, else with 1."""
    die_with_parent(parent)
    name_process("toolflow-supervisor")
    # A signal to the whole group is for the main process; all others obey its flags. Children inherit this.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    supervisor = Supervisor()
    try:
        sys.exit(supervisor.run())
    finally:
        supervisor.kill_children()


class Supervisor:
    """Each child reclaims, before its work, what those that died before left behind."""

    def __init__(self) -> None:
        self._channel = TaskChannel()
        self._children: list[BaseProcess] = []

    def run(self) -> int:
        """Replace children until the worker stops, and until all have then ended; gives the exit status."""
        status = 0
        try:
            for name in [WORKER] * Conf.WORKERS + [DISPATCHER]:
                self._children.append(self._fork(name))
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

    def _replace_dead(self) -> None:
        for child in list(self._children):
            if not child.is_alive():
                _log_death(child)
                self._children.remove(child)
                self._children.append(self._fork(child.name))

    def _fork(self, name: str) -> BaseProcess:
        child = multiprocessing.get_context("fork").Process(target=self._work, args=(os.getpid(), name), name=name)
        child.start()
        return child

    def _work(self, parent: int, name: str) -> None:
        """What a child does."""
        die_with_parent(parent)
        name_process(name)
        _recover()
        if name == WORKER:
            do_tasks(self._channel)
        else:
            Dispatcher(self._channel, recover=_recover).run()


def _recover() -> None:
    """Sweep; what can't be done now a later sweep does."""
    try:
        sweep()
    except AnyDatabaseError as error:
        logger.warning("What dead processes left behind could not be reclaimed yet; a later sweep does so: %s", error)
    except Exception:
        logger.exception("What dead processes left behind could not be reclaimed.")
    finally:
        connections.close_all()


def _log_death(child: BaseProcess) -> None:
    """Log the death of a child, unless it was recycled."""
    if code := child.exitcode:
        how = f"was killed (signal {-code})" if code < 0 else f"ended with exit status {code}"
        if code == -signal.SIGALRM:
            how += " because its event loop hung"
        what = "Worker process" if child.name == WORKER else "Dispatcher"
        logger.warning("%s %s %s; another takes its place.", what, child.pid, how)
