"""A process of a throwaway installation that takes commands: it submits runs and measures its worker.

Commands: ``{"runs": 100}`` has a batch executed; ``{"starts": 15}`` starts single runs on the idle system;
``{"size": 1}`` gives the bytes that the database holds.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

import django
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Max

from benchmarks.contender import ROOT
from benchmarks.processes import (
    find_busiest,
    find_process_tree,
    forget_peak_memory,
    read_cpu_times,
    read_peak_memory,
)
from benchmarks.work import FLOW
from flows import __version__

LOOK = 0.05
"""Seconds between polls of the runs."""
SETTLING = 0.5
"""Seconds that the worker is given to fall idle; what it uses then counts too."""


class InstalledToolFlow:
    """An installation, set up as its environment says, and its worker."""

    def __init__(self) -> None:
        from flows.examples import load_examples, load_sample_input
        from flows.models import Flow

        call_command("migrate", verbosity=0, interactive=False)
        load_examples()
        self._flow = Flow.objects.get(name=FLOW)
        self._input = load_sample_input(FLOW)
        self._worker = _start_worker()

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a command says."""
        if "runs" in command:
            return self._execute(command["runs"])
        if "starts" in command:
            return {"latencies": [self._start_one() for _ in range(command["starts"])]}
        return {"size": measure_database()}

    def stop(self) -> None:
        """Stop the worker in order."""
        self._worker.send_signal(signal.SIGTERM)
        self._worker.wait(timeout=60)

    def _execute(self, count: int) -> dict[str, Any]:
        from runs.models import Run, RunStatus
        from runs.submission import submit_run

        pids = self._find_worker_processes()
        for pid in pids:
            forget_peak_memory(pid)
        before, backends = read_cpu_times(pids), read_cpu_times(self._find_backends())
        with transaction.atomic():
            runs = [submit_run(flow=self._flow, input=self._input) for _ in range(count)]
        submitted = time.time()
        mine = Run.objects.filter(pk__gte=runs[0].pk, pk__lte=runs[-1].pk)
        while mine.filter(status__in=[RunStatus.QUEUED, RunStatus.RUNNING]).exists():
            time.sleep(LOOK)
        ended: datetime = mine.aggregate(ended=Max("ended_at"))["ended"]
        time.sleep(SETTLING)
        after, backends_after = read_cpu_times(self._find_worker_processes()), read_cpu_times(self._find_backends())
        drain, cpu = find_busiest(before, after)
        return {
            "cpu": cpu,
            "cpu_all": after.total - before.total + backends_after.total - backends.total,
            "wall": ended.timestamp() - submitted,
            "failed": count - mine.filter(status=RunStatus.SUCCEEDED).count(),
            "memory": read_peak_memory(drain),
            "drain": drain,
        }

    def _start_one(self) -> float:
        """Seconds from the start of the submission to the start of the run's first attempt."""
        from runs.models import Attempt
        from runs.submission import submit_run

        time.sleep(SETTLING)
        began = time.time()
        run = submit_run(flow=self._flow, input=self._input)
        while not run.has_ended:
            time.sleep(LOOK)
            run.refresh_from_db()
        first = Attempt.objects.filter(step__run=run, step__index=1).earliest("number")
        assert first.started_at is not None
        return first.started_at.timestamp() - began

    def _find_worker_processes(self) -> list[int]:
        return find_process_tree(self._worker.pid)

    def _find_backends(self) -> list[int]:
        """The server processes that serve this installation, without the one that serves this process."""
        if connection.vendor != "postgresql":
            return []
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return [pid for (pid,) in cursor.fetchall()]


def measure_database() -> int:
    """Bytes that the database holds, with indexes and with what updates have left behind."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
        else:
            cursor.execute(
                "SELECT (page_count - freelist_count) * page_size "
                "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
            )
        return int(cursor.fetchone()[0])


def main() -> None:
    """Serve commands until there are no more."""
    django.setup()
    installed = InstalledToolFlow()
    try:
        _say({"ToolFlow": __version__, "database": connection.vendor})
        for line in sys.stdin:
            _say(installed.answer(json.loads(line)))
    finally:
        installed.stop()


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _start_worker() -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "run_worker"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    if worker.stdout is None or b"started" not in worker.stdout.readline():
        raise RuntimeError("The worker did not start.")
    return worker


if __name__ == "__main__":
    main()
