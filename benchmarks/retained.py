"""A process of ``retention``: it fills a database, purges it, or stores runs and notes how long commits take.

Commands: ``{"fill": 20000}`` stores runs of an earlier year, with so many attempts; ``{"purge": "runs"}`` takes them
away, or their outputs; ``{"record": 5}`` stores runs for so many seconds, 0 for as long as nobody asks to stop;
``{"stop": 1}`` asks for that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import django
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import DurationField, ExpressionWrapper, F, Sum, Value
from django.utils import timezone

from benchmarks.processes import read_cpu_times
from benchmarks.work import FLOW

AT_A_TIME = 200
OLD, APART = timedelta(days=400), timedelta(minutes=1)
"""How long ago the first run was stored, and how far from one to the next."""
COPIED = 2_000
"""Runs that are made findable in one transaction."""


class _Retained:
    def __init__(self, stop_file: Path) -> None:
        from flows.examples import load_examples, load_sample_input
        from flows.models import Flow

        call_command("migrate", verbosity=0, interactive=False)
        load_examples()
        self._stop_file = stop_file
        self._flow = Flow.objects.select_related("live_version").get(name=FLOW)
        self._input = load_sample_input(FLOW)

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a command says."""
        if "fill" in command:
            return self._fill(command["fill"])
        if "purge" in command:
            return self._purge(command["purge"])
        if "record" in command:
            self._stop_file.unlink(missing_ok=True)
            return asyncio.run(self._record(command["record"]))
        self._stop_file.touch()
        return {}

    def _fill(self, attempts: int) -> dict[str, Any]:
        from benchmarks.recording import store_runs
        from benchmarks.stored_runs import copy_runs
        from runs.models import Run
        from runs.rollup import count_ended_runs

        stored = store_runs(self._flow, self._input, 1)
        while count_ended_runs():
            pass
        # Copies lack what search and lists find runs by: that is stored for them below, as counting would.
        copy_runs(int(attempts / stored["attempts"]))
        self._make_old()
        self._make_findable()
        with connection.cursor() as cursor:
            # As any database is that has been at work for longer than this one.
            cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
        return {"attempts": Run.objects.aggregate(sum=Sum("attempt_count"))["sum"]}

    def _make_old(self) -> None:
        """Put what was stored a year back, one run after the other: copies all ended at the same moment."""
        from runs.models import Run

        is_native = connection.features.has_native_duration_field
        apart = F("pk") * (Value(APART) if is_native else Value(APART // timedelta(microseconds=1)))
        shift = ExpressionWrapper(apart, output_field=DurationField())
        Run.objects.ended().update(**{name: F(name) - OLD + shift for name in ("created_at", "started_at", "ended_at")})

    def _make_findable(self) -> None:
        from runs.models import Run
        from runs.search import index_runs

        template, *copies = Run.objects.ended().order_by("pk").values_list("pk", flat=True)
        for first in range(0, len(copies), COPIED):
            chunk = copies[first : first + COPIED]
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO runs_runfacet (run_id, created_at, kind, value) "
                    "SELECT copy.id, copy.created_at, kind, value FROM runs_run AS copy, runs_runfacet AS facet "
                    "WHERE copy.id BETWEEN %s AND %s AND facet.run_id = %s",
                    [chunk[0], chunk[-1], template],
                )
                index_runs(chunk)

    def _purge(self, part: str) -> dict[str, Any]:
        from runs.retention.pacing import Pace
        from runs.retention.policy import Part
        from runs.retention.purging import Task, purge

        task = Task(self._flow, Part(part), timezone.now() - OLD / 2)
        begin, cpu = time.perf_counter(), _read_cpu()
        purged = purge(task, pace=Pace())
        return {
            "attempts": purged.attempts,
            "longest": purged.longest,
            "seconds": time.perf_counter() - begin,
            "cpu": _read_cpu() - cpu,
        }

    async def _record(self, seconds: float) -> dict[str, Any]:
        from benchmarks.recording import LEASE, execute_once
        from flows.engine.history import History
        from flows.engine.plugins import registry
        from flows.engine.spec_check import prepare_spec
        from flows.providers import default_model_settings
        from runs.claiming import claim_runs
        from runs.models import Run
        from runs.recorder import RunRecorder
        from runs.submission import RunOrder, submit_runs
        from runs.worker.database_thread import DatabaseThread

        assert self._flow.live_version is not None
        spec = prepare_spec(self._flow.live_version.flow_spec, registry=registry, defaults=default_model_settings())
        progress = await execute_once(spec, self._input)
        commits: list[float] = []
        database = DatabaseThread(note_batch=lambda _count, taken: commits.append(taken))
        attempts = 0

        def claim() -> list[Run]:
            submit_runs(flow=self._flow, orders=[RunOrder(self._input) for _ in range(AT_A_TIME)])
            return claim_runs(free=AT_A_TIME, owner="benchmark", lease=LEASE, is_simulated=True)

        async def work_on(run: Run) -> None:
            nonlocal attempts
            recorder = RunRecorder(run, spec, History.begin(run.input, run_id=str(run.pk)))
            for step in progress:
                write = recorder.prepare(step)
                recorder.confirm(write, await database.store(write))
                attempts += step.ended is not None

        begin = time.perf_counter()
        stored_for = 0.0
        while time.perf_counter() - begin < seconds if seconds else not self._stop_file.exists():
            runs = await database.ask(claim)
            began = time.perf_counter()
            await asyncio.gather(*map(work_on, runs))
            stored_for += time.perf_counter() - began
        await database.close()
        return {
            "attempts": attempts,
            "seconds": stored_for,
            "median": median(commits),
            "high": quantiles(commits, n=100)[-1],
        }


def _read_cpu() -> float:
    """Seconds of CPU that this process and the one that serves it on PostgreSQL have used so far."""
    connection.ensure_connection()
    pids = [os.getpid()]
    if connection.vendor == "postgresql":
        pids.append(connection.connection.info.backend_pid)
    return sum(read_cpu_times(pids).own.values())


def main() -> None:
    """Serve commands until there are no more."""
    django.setup()
    retained = _Retained(Path(os.environ["BENCHMARK_STOP_FILE"]))
    for answer in chain([{}], (retained.answer(json.loads(line)) for line in sys.stdin)):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
