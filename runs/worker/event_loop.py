"""A drain: one event loop with many runs under way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from flows import __version__
from flows.providers import build_providers, create_client, find_simulation, list_providers
from runs.claiming import SUSPECT_CRASHES, claim_runs
from runs.group_commit import RunWrite
from runs.limits.gate import create_gate
from runs.models import Run, Worker
from runs.observability import find_worker_meter
from runs.ownership import Owner
from runs.queue import WakeChannel, draining, force_quit
from runs.rollup import Rollup
from runs.spending import load_budgets
from runs.sweep import sweep
from runs.tracing import create_tracer
from runs.worker.database_thread import DATABASE_ERRORS, DatabaseThread
from runs.worker.run_events import RunEvents, note_drain_start, note_drain_stop
from runs.worker.run_task import PreparedVersions, RunTask, StopReason, WorkerContext

if TYPE_CHECKING:
    from runs.tracing.spans import RunTracer

logger = logging.getLogger(__name__)

TICK = 0.05
"""Seconds between claims while slots are free."""
SLOW_TICK = 0.5
"""The same while the database is away, while all that is queued waits for a limit, and in an idle drain that Redis
wakes. Also the seconds between checks of cancel flags and of budgets that flows share."""
CLAIM_THRESHOLD = 1 / 8
"""With a backlog, the part of all slots that wakes the drain as soon as it is free: a claim costs the same for many."""
HEARTBEAT = 5.0
"""Seconds between heartbeats, at most; a short lease has at least ``HEARTBEATS_PER_LEASE``."""
HEARTBEATS_PER_LEASE = 6
HANG_LEASES = 4
"""A drain whose event loop hangs for as long as this many leases is killed; the supervisor starts another process."""
WARNING_INTERVAL = 60.0
"""Seconds between warnings that the database is away."""


class Drain:
    """One event loop with up to ``TOOLFLOW_RUNS_IN_FLIGHT`` runs under way."""

    def __init__(self, *, leaves_when_idle: bool = False) -> None:
        """A drain stays also without work, so that the next run starts at once; ``leaves_when_idle`` says otherwise."""
        self._owner = Owner.of_this_process()
        self._name = str(self._owner)
        self._leaves_when_idle = leaves_when_idle
        self._capacity = settings.TOOLFLOW_RUNS_IN_FLIGHT
        self._lease = timedelta(seconds=settings.TOOLFLOW_LEASE)
        self._heartbeat = min(HEARTBEAT, self._lease.total_seconds() / HEARTBEATS_PER_LEASE)
        self._tasks: dict[int, tuple[RunTask, asyncio.Task[None]]] = {}
        self._executed = 0
        self._woken = asyncio.Event()
        """Set when runs were queued."""
        self._is_blocked = False
        """Whether nothing that is queued can go now."""
        self._has_backlog = False
        """Whether more was queued at the last claim than slots were free."""
        self._done_at: dict[str, float] = {}
        """When jobs were last done that are due from time to time, by name."""

    async def run(self) -> int:
        """Work until the worker stops, or until idle if it leaves then; gives the number of runs worked on."""
        began_at = time.monotonic()
        async with contextlib.AsyncExitStack() as closing:

            def start(work: Awaitable[None]) -> None:
                closing.callback(asyncio.ensure_future(work).cancel)

            closing.callback(signal.alarm, 0)
            start(self._renew_alarm())
            tracer = create_tracer()
            if tracer is not None:
                closing.push_async_callback(tracer.close)
            events = RunEvents(meter=find_worker_meter())
            self._database = DatabaseThread(on_commit=self._note_commit)
            closing.push_async_callback(self._database.close)
            closing.push_async_callback(self._try, partial(self._database.ask, self._sign_off))
            self._gate = create_gate(owner=self._name, ask=self._database.ask)
            closing.push_async_callback(self._gate.close)
            clients = {provider.name: create_client(provider) for provider in list_providers()}
            for client in clients.values():
                closing.push_async_callback(client.close)
            self._context = WorkerContext(
                database=self._database,
                client=clients.pop(""),
                clients=clients,
                versions=PreparedVersions(build_providers()),
                gate=self._gate,
                stop=asyncio.Event(),
                events=events,
            )
            self._channel = WakeChannel(self._woken)
            start(self._channel.listen())
            start(self._roll_up(tracer))
            is_well = False
            note_drain_start(owner=self._name, slots=self._capacity)
            try:
                await self._work()
                is_well = True
            finally:
                # Also after an error of our own: the runs are not to wait until their leases end.
                await self._hand_back_all(at_once=not is_well)
                seconds = time.monotonic() - began_at
                note_drain_stop(owner=self._name, runs=self._executed, seconds=seconds, is_well=is_well)
        return self._executed

    async def _work(self) -> None:
        while not draining.is_set():
            is_well = await self._try(self._tick)
            if self._leaves_when_idle and is_well and not self._tasks:
                return
            is_slow = not is_well or self._is_blocked or (self._channel.is_open and not self._tasks)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SLOW_TICK if is_slow else TICK):
                    await self._woken.wait()
            self._woken.clear()

    async def _tick(self) -> None:
        await self._renew_leases()
        await self._claim()

    async def _hand_back_all(self, *, at_once: bool) -> None:
        """Hand all runs back, at the next boundary between attempts or at once; keep the leases meanwhile."""
        self._context.stop.set()
        while self._tasks:
            if at_once or force_quit.is_set():
                for run_id in list(self._tasks):
                    self._stop_run(run_id, StopReason.FORCED)
            await asyncio.wait([task for _, task in self._tasks.values()], timeout=SLOW_TICK)
            await self._try(self._renew_leases)

    async def _try(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do ``work``; False if the database is away. Runs under way go on meanwhile, and their writes wait."""
        try:
            await work()
        except DATABASE_ERRORS as error:
            if self._is_due("warning", WARNING_INTERVAL):
                logger.warning("The database can't be reached: %s", str(error).strip())
            return False
        return True

    def _is_due(self, job: str, interval: float) -> bool:
        now = time.monotonic()
        if now - self._done_at.get(job, -interval) < interval:
            return False
        self._done_at[job] = now
        return True

    async def _renew_alarm(self) -> None:
        """Have the kernel kill this process if its event loop hangs: nothing in it could notice.

        Apart from the heartbeat, which waits for the database: results of calls outlast its outages here.
        """
        while True:
            signal.alarm(HANG_LEASES * settings.TOOLFLOW_LEASE)
            await asyncio.sleep(self._lease.total_seconds() / HEARTBEATS_PER_LEASE)

    async def _roll_up(self, tracer: RunTracer | None) -> None:
        """Count runs that have ended, on whichever worker, for as long as this drain works."""
        rollup = Rollup(on_rolled_up=tracer.trace_ended_runs if tracer is not None else None)
        while True:
            pause = await self._database.ask(lambda: rollup.advance(is_busy=bool(self._tasks)))
            await asyncio.sleep(pause)

    async def _claim(self) -> None:
        free = self._capacity - len(self._tasks)
        if free <= 0:
            return
        runs = [run_task.run for run_task, _ in self._tasks.values()]
        unable = list(self._context.unable)
        claimed = await self._database.ask(
            lambda: claim_runs(
                free=free,
                owner=self._name,
                lease=self._lease,
                is_simulated=find_simulation(),
                in_flight=Counter(run.flow_id for run in runs),
                has_suspect=any(run.crashes >= SUSPECT_CRASHES for run in runs),
                unable=unable,
                available_permits=self._gate.available_permits,
            )
        )
        self._is_blocked = claimed == []
        self._has_backlog = claimed is not None and len(claimed) == free
        for run in claimed or []:
            self._stop_run(run.pk, StopReason.LOST)
            run_task = RunTask(run, self._context)
            task = asyncio.create_task(run_task.execute(), name=f"run {run.pk}")
            self._tasks[run.pk] = (run_task, task)
            task.add_done_callback(partial(self._forget, run.pk))

    def _forget(self, run_id: int, task: asyncio.Task[None]) -> None:
        self._executed += 1
        # A run that was lost and claimed again here has a new task.
        if run_id in self._tasks and self._tasks[run_id][1] is task:
            del self._tasks[run_id]
        free = self._capacity - len(self._tasks)
        # If blocked, the limit that all others wait for may be free now.
        if self._is_blocked or (self._has_backlog and free >= self._capacity * CLAIM_THRESHOLD):
            self._woken.set()

    def _stop_run(self, run_id: int, reason: StopReason) -> None:
        if run_id in self._tasks:
            run_task, task = self._tasks[run_id]
            if run_task.stop_reason is None:
                run_task.stop_reason = reason
                task.cancel()

    async def _renew_leases(self) -> None:
        """Beat if that is due, and check cancel flags and budgets."""
        if self._is_due("heartbeat", self._heartbeat):
            try:
                await self._beat()
            except DATABASE_ERRORS:
                # Due again at once: leases may be short of time, and nothing is claimed before limits are known.
                del self._done_at["heartbeat"]
                raise
        if self._is_due("flags", SLOW_TICK):
            ids = list(self._tasks)
            for run_id in await self._database.ask(lambda: self._load_flags(ids)):
                self._stop_run(run_id, StopReason.CANCELLED)

    async def _beat(self) -> None:
        """Renew leases, limits and what the drain shows of itself, and sweep."""
        ids = list(self._tasks)
        held = await self._database.ask(lambda: Run.objects.renew(owner=self._name, ids=ids, lease=self._lease))
        for run_id in set(ids) - held:
            # One that ended since its lease was renewed is not lost.
            if run_id in self._tasks and not self._tasks[run_id][0].is_leaving:
                logger.warning("Run %s is no longer leased by this worker; dropping it.", run_id)
                self._stop_run(run_id, StopReason.LOST)
        await self._gate.refresh()
        unable = dict(self._context.unable)
        await self._database.ask(lambda: self._sign_on(len(self._tasks), unable))
        await self._database.ask(sweep)

    # From here on: on the database thread.

    def _sign_on(self, in_flight: int, unable: dict[int, str]) -> None:
        """Show this drain among the workers, and note on runs that it can't execute what they wait for."""
        values = {
            "in_flight": in_flight,
            "is_stopping": self._context.stop.is_set(),
            "unable_versions": list(unable),
            "heartbeat_at": Now(),
        }
        own = {"host": self._owner.host, "pid": self._owner.pid, "version": __version__, "slots": self._capacity}
        Worker.objects.update_or_create(owner=self._name, defaults=values, create_defaults={**values, **own})
        for version, sentence in unable.items():
            Run.objects.queued().filter(version=version, waiting_since=None).update(
                waiting_for=sentence, waiting_since=Now(), revision=F("revision") + 1
            )

    def _sign_off(self) -> None:
        Worker.objects.filter(owner=self._name).delete()

    def _load_flags(self, ids: list[int]) -> list[int]:
        """Load the budgets of flows; gives those of the runs that are to be cancelled."""
        budgets = load_budgets()
        for flow_id, budget in budgets.items():
            if (known := self._context.budgets.get(flow_id)) is not None:
                budget.in_flight = known.in_flight
        self._context.budgets = budgets
        if not ids:
            return []
        flagged = Run.objects.running().filter(pk__in=ids, cancel_requested=True)
        return list(flagged.values_list("pk", flat=True))

    def _note_commit(self, writes: Sequence[RunWrite], seconds: float) -> None:
        """Add what attempts used to the budgets of their flows, and report the transaction."""
        for write in writes:
            budget = self._context.budgets.get(write.flow_id) if write.has_flow_budget else None
            if budget is not None and write.usage is not None:
                budget.add_stored(write.run_id, write.usage)
        self._context.events.note_batch(len(writes), seconds)
