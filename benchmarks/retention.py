"""Retention: how fast attempts are purged while runs are stored, and how much that slows storing.

One process purges; another one stores runs as a drain does, 200 at a time. As a program this is such a process:
``{"fill": 5000}`` stores runs of earlier months, ``{"purge": "runs"}`` deletes them or their outputs,
``{"record": 5}`` stores runs for that number of seconds, 0 until ``{"stop": 1}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from threading import Thread
from typing import Any

from benchmarks.contender import Contender
from benchmarks.figures import Figure, Setting, print_table, say
from benchmarks.installation import creating_postgres_database
from benchmarks.web import build_environment

RUNS, MANY_RUNS = 5_000, 250_000
"""Runs that are purged, and with ``--long``; about four attempts each."""
CALM_SECONDS = 5.0
"""How long runs are stored before the purge begins."""
AT_A_TIME = 200
STOP_FILE = "BENCHMARK_STOP_FILE"


def measure(setting: Setting) -> list[Figure]:
    """Measure both databases, print a table, and give the figures that have targets."""
    rows: list[Sequence[str]] = []
    figures: list[Figure] = []
    with ExitStack() as stack:
        databases = [("SQLite", f"sqlite:///{setting.folder / 'retention.sqlite3'}")]
        if setting.postgres is not None:
            url = stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_retention"))
            databases.append(("PostgreSQL", url))
        for name, url in databases:
            figures += _measure_one(name, url, setting, rows)
    header = ("database", "purged", "attempts", "a second", "longest transaction, ms", "stored a second", "commit, ms")
    print_table("Retention beside a writer; commits as median / 99 %", header, rows)
    return figures


def _measure_one(name: str, url: str, setting: Setting, rows: list[Sequence[str]]) -> list[Figure]:
    figures = []
    with (
        _start(f"purge on {name}", url, setting.folder) as purger,
        _start(f"write on {name}", url, setting.folder) as writer,
    ):
        stored = purger.ask(fill=MANY_RUNS if setting.is_long else RUNS)
        say(f"  {name}: {stored['attempts']:,} attempts stored")
        calm = writer.ask(record=CALM_SECONDS)
        rows.append((name, "nothing", "", "", "", f"{calm['rate']:,.0f}", calm["commit"]))
        for part in ("outputs", "runs"):
            purged, busy = _purge_beside(purger, writer, part)
            rate = purged["attempts"] / purged["seconds"]
            longest = f"{purged['longest'] * 1000:.0f}"
            attempts = f"{purged['attempts']:,}"
            rows.append((name, part, attempts, f"{rate:,.0f}", longest, f"{busy['rate']:,.0f}", busy["commit"]))
            kept = busy["rate"] / calm["rate"] * 100
            figures += [
                Figure(f"Attempts purged ({part}) on {name}", rate, "a second", at_least=300),
                Figure(f"Attempts stored beside it ({part}) on {name}", kept, "% of those without", at_least=80),
            ]
    return figures


def _purge_beside(purger: Contender, writer: Contender, part: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers of the purge, and of the writer that stored runs until it was over."""
    answers: dict[str, Any] = {}
    thread = Thread(target=lambda: answers.update(writer=writer.ask(record=0)))
    thread.start()
    try:
        answers["purger"] = purger.ask(purge=part)
    finally:
        purger.ask(stop=1)
        thread.join()
    return answers["purger"], answers["writer"]


def _start(name: str, url: str, folder: Path) -> Contender:
    data = folder / name.replace(" ", "-")
    data.mkdir(parents=True)
    environment = build_environment(data, DATABASE_URL=url, **{STOP_FILE: str(folder / "retention-stop")})
    command = [sys.executable, "-m", "benchmarks.retention"]
    return Contender(name, command, log=data / "log.txt", environment=environment)


def _answer(command: dict[str, Any], stop_file: Path) -> dict[str, Any]:
    if "fill" in command:
        return _fill(command["fill"])
    if "purge" in command:
        return _purge(command["purge"])
    if "record" in command:
        stop_file.unlink(missing_ok=True)
        return _record(command["record"], stop_file)
    stop_file.touch()
    return {}


def _fill(runs: int) -> dict[str, Any]:
    from django.db import connection
    from django.utils import timezone

    from runs.models import Attempt
    from runs.seeding import seed_history

    seed_history(runs=runs, until=timezone.now() - timedelta(days=100), days=300)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return {"attempts": Attempt.objects.count()}


def _purge(part: str) -> dict[str, Any]:
    from django.utils import timezone

    from flows.models import Flow
    from runs.retention.policy import Part, PurgeTask
    from runs.retention.purging import Purged, purge

    attempts, longest, began = 0, 0.0, time.perf_counter()
    for flow in Flow.objects.filter(name__startswith="seeded-"):
        purged = Purged()
        for purged in purge(PurgeTask(flow, Part(part), timezone.now() - timedelta(days=90))):
            longest = max(longest, purged.seconds)
        attempts += purged.attempts
    return {"attempts": attempts, "longest": longest, "seconds": time.perf_counter() - began}


def _record(seconds: float, stop_file: Path) -> dict[str, Any]:
    from benchmarks.recording import store_runs
    from benchmarks.work import FLOW
    from flows.examples import load_sample_input
    from flows.models import Flow

    flow, sample = Flow.objects.select_related("live_version").get(name=FLOW), load_sample_input(FLOW)
    began = time.perf_counter()
    stored: list[dict[str, Any]] = []
    while time.perf_counter() - began < seconds if seconds else not stop_file.exists():
        stored.append(store_runs(flow, sample, AT_A_TIME))
    commits = [commit * 1000 for one in stored for commit in one["commits"]]
    return {
        "rate": sum(one["attempts"] for one in stored) / sum(one["wall"] for one in stored),
        "commit": f"{median(commits):.0f} / {quantiles(commits, n=100)[-1]:.0f}",
    }


def main() -> None:
    """Serve commands until there are no more."""
    import django
    from django.core.management import call_command

    django.setup()
    from flows.examples import load_examples

    call_command("migrate", verbosity=0, interactive=False)
    load_examples()
    stop_file = Path(os.environ[STOP_FILE])
    for answer in chain([{}], (_answer(json.loads(line), stop_file) for line in sys.stdin)):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
