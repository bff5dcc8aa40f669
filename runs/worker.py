"""The worker: claims queued runs and executes them, many at a time, in one event loop.

``drain`` is the task that queue messages name. One drain runs per slot of a host; the slot is a file lock, which the
kernel frees when its process dies. The Run table is the truth: a message only makes sure that a drain is running.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import multiprocessing
import os
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connections

from flows.engine.errors import ProblemsError
from flows.engine.execution import Execution, Progress
from flows.engine.history import Outcome
from flows.engine.model_client import ModelClient
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import prepare_spec
from flows.models import FlowVersion
from runs.models import EndReason, Run, RunStatus
from runs.models.run import CANCELLED_SENTENCE
from runs.provider import choose_pricing, create_client, is_simulated
from runs.queue import wake_worker
from runs.recorder import LeaseLostError, RunRecorder, end_held_run
from runs.stored_history import load_history

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
HEARTBEAT = 5.0
"""Seconds between renewals of leases."""
LOOK = 0.05
"""Seconds between looks for queued runs while slots are free."""
FLAG_CHECK = 0.5
"""Seconds between looks at cancel flags."""
LINGER = 10.0
"""Seconds that an idle drain stays, so that the next run starts at once."""
ROTATION = (220.0, 260.0)
"""Seconds after which a drain makes room for a fresh one; drawn at random so that drains don't rotate together."""
LONGEST_WAIT = 30.0
"""Seconds; a run that waits longer is handed back and costs no slot."""
RECORD_PATIENCE = 120.0
"""Seconds that a finished attempt is kept for a database that is away: longer than a lease."""

DATABASE_ERRORS = (DatabaseError, InterfaceError)

stopping = multiprocessing.get_context("fork").Event()
"""Set by the worker command when it is told to stop; forked worker processes share it."""

_Result = TypeVar("_Result")


def drain() -> str:
    """Take a free slot of this host and work until nothing is left, the rotation is due, or the worker stops.

    Gives a sentence for the queue's own log.
    """
    with hold_slot() as slot:
        if slot is None:
            return "All slots of this host are taken."
        close_old_connections()
        ended = asyncio.run(Drain().run())
    # Whoever submitted a run between the last look and the release of the slot found the slot taken.
    if Run.objects.queued().exists() and not stopping.is_set():
        wake_worker()
    return f"Worked on {ended} runs."


@contextmanager
def hold_slot() -> Iterator[int | None]:
    """Hold one of this host's slots; None if all are taken."""
    for slot in range(max(1, settings.TOOLFLOW_WORKERS - 1)):
        path = settings.TOOLFLOW_DATA_DIR / f"drain-{slot}.lock"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield slot
        finally:
            os.close(descriptor)
        return
    yield None


class DrainClock:
    """The engine's clock in a drain: a wait ends early when the drain stops."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep_until(self, moment: datetime) -> None:
        while not self._stop.is_set() and (remaining := (moment - self.now()).total_seconds()) > 0:
            try:
                await asyncio.wait_for(self._stop.wait(), remaining)
            except TimeoutError:
                continue


class AsyncRecorder:
    """Hands progress to the drain's database thread and waits until it is stored."""

    def __init__(self, drain: Drain, recorder: RunRecorder) -> None:
        self._drain = drain
        self._recorder = recorder

    async def record(self, progress: Progress) -> None:
        writing = asyncio.create_task(self._drain.store(lambda: self._recorder.record(progress)))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # What ended is paid for: it is stored before the run is.
            await writing
            raise


class Drain:
    """One event loop with up to ``TOOLFLOW_RUNS_IN_FLIGHT`` runs under way."""

    def __init__(self) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self._capacity = settings.TOOLFLOW_RUNS_IN_FLIGHT
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._ended = 0
        self._stop = asyncio.Event()
        # One thread: SQLite gains nothing from more, and each would hold a connection.
        self._database = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database")
        self._client: ModelClient | None = None

    async def run(self) -> int:
        """Work until idle, due for rotation or told to stop; gives the number of runs worked on."""
        self._client = create_client()
        try:
            await self._work()
            await self._finish()
        finally:
            await self._client.close()
            await self._ask(connections.close_all)
            self._database.shutdown()
        return self._ended

    async def _work(self) -> None:
        started = idle_since = last_heartbeat = last_flag_check = time.monotonic()
        rotation = random.uniform(*ROTATION)  # noqa: S311  # spreads load, guards nothing
        while True:
            now = time.monotonic()
            if stopping.is_set() or now - started > rotation:
                break
            try:
                await self._claim()
                if now - last_flag_check >= FLAG_CHECK:
                    last_flag_check = now
                    await self._honour_cancel_flags()
                if now - last_heartbeat >= HEARTBEAT:
                    last_heartbeat = now
                    await self._renew_leases()
            except DATABASE_ERRORS as error:
                # Runs under way go on, their recorders wait; claiming starts again when the database is back.
                logger.warning("The database can't be reached: %s", error)
                await asyncio.sleep(FLAG_CHECK)
            if self._runs:
                idle_since = now
            elif now - idle_since >= LINGER:
                break
            await asyncio.sleep(LOOK)

    async def _finish(self) -> None:
        """Let the calls under way end, hand their runs back at the boundary, and keep the leases meanwhile."""
        self._stop.set()
        while self._runs:
            await asyncio.wait(self._runs.values(), timeout=FLAG_CHECK)
            try:
                await self._renew_leases()
                await self._honour_cancel_flags()
            except DATABASE_ERRORS as error:
                logger.warning("The database can't be reached: %s", error)

    async def _claim(self) -> None:
        free = self._capacity - len(self._runs)
        if free <= 0:
            return
        claimed = await self._ask(
            lambda: Run.objects.claim(free=free, owner=self.owner, lease=LEASE, is_simulated=is_simulated())
        )
        for run in claimed:
            if (lost := self._runs.get(run.pk)) is not None:
                lost.cancel()
            task = asyncio.create_task(self._execute(run), name=f"run {run.pk}")
            self._runs[run.pk] = task
            task.add_done_callback(partial(self._forget, run.pk))

    def _forget(self, run_id: int, task: asyncio.Task[None]) -> None:
        self._ended += 1
        # A run that was lost and claimed again here has a new task by now.
        if self._runs.get(run_id) is task:
            del self._runs[run_id]
            self._cancelled.discard(run_id)

    async def _renew_leases(self) -> None:
        ids = list(self._runs)
        if not ids:
            return
        held = await self._ask(lambda: Run.objects.renew(owner=self.owner, ids=ids, lease=LEASE))
        for run_id in set(ids) - held:
            if (task := self._runs.get(run_id)) is not None:
                logger.warning("Run %s is no longer held by this worker; it is dropped.", run_id)
                task.cancel()

    async def _honour_cancel_flags(self) -> None:
        ids = list(self._runs)
        if not ids:
            return
        flagged = await self._ask(
            lambda: list(Run.objects.running().filter(pk__in=ids, cancel_requested=True).values_list("pk", flat=True))
        )
        for run_id in flagged:
            if run_id not in self._cancelled and (task := self._runs.get(run_id)) is not None:
                self._cancelled.add(run_id)
                task.cancel()

    async def _execute(self, run: Run) -> None:
        """Take one claimed run as far as it goes. Never raises: what goes wrong ends the run or leaves it to others."""
        try:
            history = await self._ask(lambda: load_history(run))
            spec = prepare_version(run.version, ModelSettings.model_validate(run.model_settings))
            recorder = RunRecorder(run, spec, history)
            assert self._client is not None
            execution = Execution(
                spec=spec,
                client=self._client,
                registry=registry,
                recorder=AsyncRecorder(self, recorder),
                clock=DrainClock(self._stop),
                call_timeout=settings.TOOLFLOW_CALL_TIMEOUT,
                longest_wait=LONGEST_WAIT,
                should_stop=self._stop.is_set,
                price=choose_pricing(),
            )
            end = await execution.execute(history)
            if end.finish is None:
                delay = max(timedelta(0), end.resume_at - datetime.now(UTC)) if end.resume_at else timedelta(0)
                await self.store(lambda: run.hand_back(delay=delay))
        except asyncio.CancelledError:
            if run.pk in self._cancelled:
                await self._end(run, RunStatus.CANCELLED, EndReason.CANCELLED, CANCELLED_SENTENCE)
        except LeaseLostError as error:
            logger.warning("%s", error)
        except ProblemsError as error:
            sentence = f"Version {run.version.number} can't run on this worker. {error}"
            await self._end(run, RunStatus.ERRORED, EndReason.CONFIGURATION, sentence)
        except Exception as error:
            logger.exception("Run %s failed inside ToolFlow.", run.pk)
            sentence = f"ToolFlow itself failed ({type(error).__name__}: {error}). The worker's log has the details."
            await self._end(run, RunStatus.ERRORED, EndReason.INTERNAL_ERROR, sentence)

    async def _end(self, run: Run, status: RunStatus, reason: EndReason, sentence: str) -> None:
        outcome = Outcome.CANCELLED if status is RunStatus.CANCELLED else Outcome.INTERRUPTED
        try:
            await self.store(lambda: end_held_run(run, status, reason, sentence, outcome=outcome))
        except (LeaseLostError, *DATABASE_ERRORS) as error:
            # The lease runs out, and the sweep gives the run to a worker that can.
            logger.warning("Run %s could not be ended here: %s", run.pk, error)

    async def store(self, write: Callable[[], _Result]) -> _Result:
        """Do a write on the database thread, again and again while the database is away, within a bound."""
        deadline = time.monotonic() + RECORD_PATIENCE
        while True:
            try:
                return await self._ask(write)
            except (OperationalError, InterfaceError) as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("A write waits for the database: %s", error)
                await asyncio.sleep(1)

    async def _ask(self, read: Callable[[], _Result]) -> _Result:
        def ask() -> _Result:
            close_old_connections()
            return read()

        return await asyncio.get_running_loop().run_in_executor(self._database, ask)


MOST_PREPARED = 256
"""Executable specs that a process keeps."""

_prepared: dict[tuple[str, ModelSettings], FlowSpec] = {}


def prepare_version(version: FlowVersion, defaults: ModelSettings) -> FlowSpec:
    """The executable spec of a version; prepared once per process, since versions never change.

    Raises ``SpecError`` if it can't run here.
    """
    key = (version.digest, defaults)
    if len(_prepared) >= MOST_PREPARED:
        _prepared.clear()
    if key not in _prepared:
        _prepared[key] = prepare_spec(version.flow_spec, registry=registry, defaults=defaults)
    return _prepared[key]
