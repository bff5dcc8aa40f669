"""Threads for calls that may never return: each is waited for only so long, and a stuck one holds up nobody.

No thread can be stopped from outside. One whose call took too long is given up: it gets no more calls and its place
goes to a fresh one. All are daemons, so that a process with stuck ones can still exit.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from flows.engine.clock import describe_seconds
from flows.engine.errors import ExpressionError, ExpressionTimeout

MOST_THREADS = 32
"""Calls at work at one time, not counting those that were given up."""
MOST_GIVEN_UP = 8
"""Calls of one function that were given up and still run, before it isn't called any more."""


@dataclass(eq=False, slots=True)
class _Job:
    name: str
    call: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)
    started_at: float | None = None
    """By the monotonic clock; None while no thread has taken it."""
    is_given_up: bool = False
    is_over: bool = False


class DaemonThreads:
    """At most ``most`` threads that calls are made in, started when they are needed."""

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most
        self._reset()
        if hasattr(os, "register_at_fork"):
            # Threads don't survive a fork; the child must not wait for them.
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = 0
        self._free = 0
        """Threads that wait for a job, less the jobs that wait for one."""
        self._given_up: Counter[str] = Counter()

    @property
    def given_up(self) -> int:
        """How many calls were given up and still run, each in a thread that is lost until then."""
        return self._given_up.total()

    async def run(self, name: str, call: Callable[[], Any], *, timeout: float) -> Any:
        """What ``call`` gives, called in a thread with the context of the caller.

        ``timeout`` is in seconds from when a thread takes the call; a cancelled task gives the call up at once. Raises
        what the call raises, and ``ExpressionTimeout`` if it does not return in time. ``name`` says whose call it is.
        """
        if self._given_up[name] >= MOST_GIVEN_UP:
            raise ExpressionError(
                f"“{name}” is not called: {self._given_up[name]} earlier calls of it on this worker did not return "
                "in time and are still running."
            )
        job = _Job(name, _keep_context(call))
        self._submit(job)
        result = asyncio.wrap_future(job.result)
        try:
            left = timeout
            while left > 0:
                await asyncio.wait({result}, timeout=left)
                if result.done():
                    return result.result()
                # What waits for a thread has its time still before it.
                left = timeout if job.started_at is None else job.started_at + timeout - time.monotonic()
            raise ExpressionTimeout(f"“{name}” did not return within {describe_seconds(timeout)}.")
        finally:
            if not result.done():
                self._give_up(job)
                result.cancel()

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._jobs.put(job)
            self._free -= 1
            if self._free < 0 and self._threads < self._most:
                self._start_thread()

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="call", daemon=True).start()
        self._threads += 1
        self._free += 1

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            if job.is_over:
                return
            job.is_given_up = True
            if job.started_at is None:
                return
            self._given_up[job.name] += 1
            self._threads -= 1
            if self._free < 0:
                self._start_thread()

    def _work(self) -> None:
        # Nothing of a job may live on here while the thread waits for the next.
        while self._do(self._jobs.get()):
            pass

    def _do(self, job: _Job) -> bool:
        """Make the call of a job; gives whether the thread is still one of ours afterwards."""
        with self._lock:
            if job.is_given_up:
                self._free += 1
                return True
            job.result.set_running_or_notify_cancel()
            job.started_at = time.monotonic()
        value, raised = None, None
        try:
            value = job.call()
        except BaseException as error:  # noqa: BLE001  # whatever it is belongs to who asked
            raised = error
        if not self._finish(job):
            return False
        if raised is None:
            job.result.set_result(value)
        else:
            job.result.set_exception(raised)
        return True

    def _finish(self, job: _Job) -> bool:
        """Whether somebody still waits for a call that has returned."""
        with self._lock:
            if job.is_given_up:
                self._given_up[job.name] -= 1
                return False
            job.is_over = True
            self._free += 1
            return True


def _keep_context(call: Callable[[], Any]) -> Callable[[], Any]:
    context = copy_context()
    return lambda: context.run(call)
