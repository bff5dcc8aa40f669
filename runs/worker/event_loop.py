"""A drain: one event loop with many runs under way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from flows import __version__
from flows.providers import build_providers
from runs.claiming import SUSPECT_CRASHES, claim_runs
from runs.limits import create_gate
from runs.measuring import find_worker_meter
from runs.models import Run, Worker
from runs.ownership import Owner
from runs.provider import create_client, find_simulation
from runs.spending import FlowBudget, load_budgets
from runs.stop_flags import hurrying, stopping
from runs.sweep import sweep
from runs.tally import Tally
from runs.tracing import create_tracer
from runs.worker.database_thread import DATABASE_ERRORS, DatabaseThread
from runs.worker.run_events import RunEvents, note_drain_start, note_drain_stop
from runs.worker.run_task import Interruption, RunTask, Workplace
from runs.worker.versions import PreparedVersions
from runs.worker.wake_channel import WakeChannel

if TYPE_CHECKING:
    from runs.tracing.run_tracer import RunTracer

logger = logging.getLogger(__name__)

HEARTBEAT = 5.0
"""Seconds between signs of life, at most; less where a lease is short."""
HEARTBEATS = 6
"""Signs of life in the time that a lease lasts, at least."""
HANG_LEASES = 4
"""A drain whose event loop hangs for as long as this many leases is killed; the guard starts another process."""
LOOK = 0.05
"""Seconds between looks for queued runs while slots are free."""
FLAG_CHECK = 0.5
"""Seconds between looks at cancel flags and at budgets that flows share."""
IDLE_LOOK = 0.1
"""The same while no run is under way: nothing more than the start of the next one depends on it."""
SLOW_LOOK = 0.5
"""The same while the database is away, while all that is queued waits for a limit, and while an idle drain hears of
queued runs at once."""
WORTHWHILE = 8
"""With a backlog, one part in so many of all slots is left to become free before the next claim."""


class Drain:
    """One event loop with up to ``TOOLFLOW_RUNS_IN_FLIGHT`` runs under way."""

    def __init__(self, *, leaves_when_idle: bool = False) -> None:
        """A drain stays also without work, so that the next run starts at once; ``leaves_when_idle`` says otherwise."""
        self._owner = Owner.of_this_process()
        self._leaves_when_idle = leaves_when_idle
        self._capacity = settings.TOOLFLOW_RUNS_IN_FLIGHT
        self._lease = timedelta(seconds=settings.TOOLFLOW_LEASE)
        self._tasks: dict[int, tuple[RunTask, asyncio.Task[None]]] = {}
        self._executed = 0
        self._news = asyncio.Event()
        """Set when looking for queued runs is worthwhile at once."""
        self._has_backlog = False
        self._is_blocked = False
        """Whether nothing that is queued can go now."""
        self._done_at: dict[str, float] = {}

    async def run(self) -> int:
        """Work until the worker stops, or until idle if it leaves then; gives the number of runs worked on."""
        began_at = time.monotonic()
        async with contextlib.AsyncExitStack() as closing:
            closing.callback(signal.alarm, 0)
            living = asyncio.create_task(self._put_off_alarm())
            closing.callback(living.cancel)
            tracer = create_tracer()
            if tracer is not None:
                closing.push_async_callback(tracer.close)
            events = RunEvents(meter=find_worker_meter(), tracer=tracer)
            self._database = DatabaseThread(note_batch=events.note_batch)
            closing.push_async_callback(self._database.close)
            closing.push_async_callback(self._guard, partial(self._database.ask, self._sign_off))
            self._gate = create_gate(owner=str(self._owner), ask=self._database.ask)
            closing.push_async_callback(self._gate.close)
            providers = build_providers()
            client = create_client(providers.default)
            clients = {name: create_client(provider) for name, provider in providers.named.items()}
            for one in (client, *clients.values()):
                closing.push_async_callback(one.close)
            self._place = Workplace(
                database=self._database,
                client=client,
                clients=clients,
                versions=PreparedVersions(providers),
                gate=self._gate,
                stop=asyncio.Event(),
                events=events,
            )
            self._channel = WakeChannel(self._news)
            listening = asyncio.create_task(self._channel.listen())
            closing.callback(listening.cancel)
            tallying = asyncio.create_task(self._tally(tracer))
            closing.callback(tallying.cancel)
            is_well = False
            note_drain_start(owner=str(self._owner), slots=self._capacity)
            try:
                await self._work()
                is_well = True
            finally:
                # Also after an error of our own: the runs are not to wait until their leases end.
                await self._finish(at_once=not is_well)
                seconds = time.monotonic() - began_at
                note_drain_stop(owner=str(self._owner), runs=self._executed, seconds=seconds, is_well=is_well)
        return self._executed

    async def _work(self) -> None:
        while not stopping.is_set():
            is_well = await self._guard(self._look_around)
            if self._leaves_when_idle and is_well and not self._tasks:
                return
            await self._wait_for_news(self._choose_pause() if is_well else SLOW_LOOK)

    async def _put_off_alarm(self) -> None:
        """Have the kernel kill this process if its event loop hangs: nothing in it could notice.

        Apart from the heartbeat, which waits for the database: results of calls outlast its outages here.
        """
        while True:
            signal.alarm(HANG_LEASES * settings.TOOLFLOW_LEASE)
            await asyncio.sleep(self._lease.total_seconds() / HEARTBEATS)

    async def _tally(self, tracer: RunTracer | None) -> None:
        """Count runs that have ended, whoever ended them, for as long as this drain works."""
        tally = Tally(tell=tracer.trace_ended_runs if tracer is not None else None)
        while True:
            # In small parts: what runs have to store comes first.
            rest = await self._database.ask(lambda: tally.advance(is_busy=bool(self._tasks)))
            await asyncio.sleep(rest)

    def _choose_pause(self) -> float:
        """Seconds until the next look for queued runs, if nothing makes one worthwhile earlier."""
        if self._is_blocked:
            return SLOW_LOOK
        if self._tasks:
            return LOOK
        return SLOW_LOOK if self._channel.is_open else IDLE_LOOK

    async def _finish(self, *, at_once: bool) -> None:
        """Hand all runs back, at the next boundary between attempts or at once; keep the leases meanwhile."""
        self._place.stop.set()
        while self._tasks:
            if at_once or hurrying.is_set():
                for run_id in list(self._tasks):
                    self._interrupt(run_id, Interruption.HURRY)
            await asyncio.wait([task for _, task in self._tasks.values()], timeout=FLAG_CHECK)
            await self._guard(self._keep_hold)

    async def _look_around(self) -> None:
        await self._keep_hold()
        await self._claim()

    async def _keep_hold(self) -> None:
        if self._is_due("heartbeat", min(HEARTBEAT, self._lease.total_seconds() / HEARTBEATS)):
            try:
                await self._beat()
            except DATABASE_ERRORS:
                # Due again at once: leases may be short of time, and nothing is claimed before limits are known.
                del self._done_at["heartbeat"]
                raise
        if self._is_due("flags", FLAG_CHECK):
            self._renew_budgets(*await self._database.ask(lambda: (self._database.commits, load_budgets())))
            await self._honour_cancel_flags()

    def _renew_budgets(self, commits: int, budgets: dict[int, FlowBudget]) -> None:
        for flow_id, budget in budgets.items():
            budget.commits = commits
            if (known := self._place.budgets.get(flow_id)) is not None:
                budget.unstored_tokens, budget.unstored_cost = known.unstored_tokens, known.unstored_cost
        self._place.budgets = budgets

    def _is_due(self, job: str, interval: float) -> bool:
        now = time.monotonic()
        if now - self._done_at.get(job, -interval) < interval:
            return False
        self._done_at[job] = now
        return True

    async def _wait_for_news(self, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._news.wait()
        except TimeoutError:
            return
        finally:
            self._news.clear()

    async def _guard(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do ``work``; False if the database is away. Runs under way go on meanwhile, and their writes wait."""
        try:
            await work()
        except DATABASE_ERRORS as error:
            if self._is_due("complaint", 60.0):
                logger.warning("The database can't be reached: %s", str(error).strip())
            return False
        return True

    async def _claim(self) -> None:
        free = self._capacity - len(self._tasks)
        if free <= 0:
            return
        in_flight = Counter(run_task.run.flow_id for run_task, _ in self._tasks.values())
        has_suspect = any(run_task.run.crashes >= SUSPECT_CRASHES for run_task, _ in self._tasks.values())
        unable = list(self._place.unable)

        found = await self._database.ask(
            lambda: claim_runs(
                free=free,
                owner=str(self._owner),
                lease=self._lease,
                is_simulated=find_simulation(),
                in_flight=in_flight,
                has_suspect=has_suspect,
                unable=unable,
                room=self._gate.available_permits,
            )
        )
        self._is_blocked = found == []
        claimed = found or []
        self._has_backlog = len(claimed) == free
        for run in claimed:
            self._interrupt(run.pk, Interruption.LOST)
            run_task = RunTask(run, self._place)
            task = asyncio.create_task(run_task.execute(), name=f"run {run.pk}")
            self._tasks[run.pk] = (run_task, task)
            task.add_done_callback(partial(self._forget, run.pk))

    def _forget(self, run_id: int, task: asyncio.Task[None]) -> None:
        self._executed += 1
        # A run that was lost and claimed again here has a new task by now.
        if run_id in self._tasks and self._tasks[run_id][1] is task:
            del self._tasks[run_id]
        free = self._capacity - len(self._tasks)
        if self._is_blocked or (self._has_backlog and free >= max(1, self._capacity // WORTHWHILE)):
            self._news.set()

    def _interrupt(self, run_id: int, why: Interruption) -> None:
        if run_id in self._tasks:
            run_task, task = self._tasks[run_id]
            if run_task.interruption is None:
                run_task.interruption = why
                task.cancel()

    async def _beat(self) -> None:
        ids = list(self._tasks)
        held = await self._database.ask(lambda: Run.objects.renew(owner=str(self._owner), ids=ids, lease=self._lease))
        for run_id in set(ids) - held:
            # One that ended since its lease was renewed is not lost.
            if run_id in self._tasks and not self._tasks[run_id][0].is_leaving:
                logger.warning("Run %s is no longer held by this worker; it is dropped.", run_id)
                self._interrupt(run_id, Interruption.LOST)
        await self._gate.refresh()
        unable = dict(self._place.unable)
        await self._database.ask(lambda: self._sign_on(len(self._tasks), unable))
        await self._database.ask(sweep)

    def _sign_on(self, in_flight: int, unable: dict[int, str]) -> None:
        """Show this drain among the workers, and tell runs that it can't execute what they wait for."""
        values = {
            "in_flight": in_flight,
            "is_stopping": self._place.stop.is_set(),
            "unable_versions": list(unable),
            "heartbeat_at": Now(),
        }
        Worker.objects.update_or_create(
            owner=str(self._owner),
            defaults=values,
            create_defaults={
                **values,
                "host": self._owner.host,
                "pid": self._owner.pid,
                "version": __version__,
                "slots": self._capacity,
            },
        )
        for version, sentence in unable.items():
            Run.objects.queued().filter(version=version, waiting_since=None).update(
                waiting_for=sentence, waiting_since=Now(), revision=F("revision") + 1
            )

    def _sign_off(self) -> None:
        Worker.objects.filter(owner=str(self._owner)).delete()

    async def _honour_cancel_flags(self) -> None:
        ids = list(self._tasks)
        if not ids:
            return
        flagged = await self._database.ask(
            lambda: list(Run.objects.running().filter(pk__in=ids, cancel_requested=True).values_list("pk", flat=True))
        )
        for run_id in flagged:
            self._interrupt(run_id, Interruption.CANCELLED)
