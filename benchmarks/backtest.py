"""Backtests: seconds of one core and memory for many runs, and lists that are read meanwhile.

As a program this is a process of an installation: ``{"fill": 10000}`` stores runs, ``{"backtest": 10000}`` judges them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from threading import Thread
from typing import Any

from benchmarks.contender import Contender
from benchmarks.figures import Figure, Setting, print_table, say
from benchmarks.installation import creating_postgres_database
from benchmarks.web import Question, Reader, build_environment, serving_pages

RUNS = 10_000
AT_A_TIME = 200
LIST = Question("list", ("/runs/", "/runs/?status=succeeded"))
SLOWER = 1.5
"""How many times as long the slowest lists may take while a backtest runs: measured once each, they vary by a third."""


def measure(setting: Setting) -> list[Figure]:
    """Measure both databases, print a table, and give the figures that have targets."""
    rows: list[Sequence[str]] = []
    figures: list[Figure] = []
    with ExitStack() as stack:
        databases = [("SQLite", "")]
        if setting.postgres is not None:
            url = stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_backtest"))
            databases.append(("PostgreSQL", url))
        for name, url in databases:
            figures += _measure_one(name, url, setting, rows)
    header = ("database", "attempts", "CPU s", "seconds", "MiB", "list p95 ms before", "meanwhile")
    print_table(f"A backtest of {RUNS:,} runs in one process", header, rows)
    return figures


def _measure_one(name: str, url: str, setting: Setting, rows: list[Sequence[str]]) -> list[Figure]:
    data = setting.folder / f"backtest-{name}"
    data.mkdir()
    environment = build_environment(data, DATABASE_URL=url)
    command = [sys.executable, "-m", "benchmarks.backtest"]
    with Contender(f"fill {name}", command, log=data / "fill.txt", environment=environment) as filler:
        known = filler.ask(fill=RUNS)
    say(f"  {name}: {known['attempts']:,} attempts stored")
    with (
        serving_pages(environment, data / "web.txt") as port,
        Contender(f"judge {name}", command, log=data / "judge.txt", environment=environment) as judge,
    ):
        reader = Reader(port, {"Cookie": f"sessionid={known['session']}"})
        before = float(reader.measure([LIST], name)[0][0][2])
        answers: dict[str, Any] = {}
        thread = Thread(target=lambda: answers.update(judge.ask(backtest=RUNS)))
        thread.start()
        meanwhile = float(reader.measure([LIST], name)[0][0][2])
        thread.join()
    cpu, memory = answers["cpu"], answers["memory"]
    seconds, lists = f"{answers['wall']:.1f}", (f"{before}", f"{meanwhile}")
    rows.append((name, f"{known['attempts']:,}", f"{cpu:.1f}", seconds, f"{memory:.0f}", *lists))
    return [
        Figure(f"CPU for {RUNS:,} runs on {name}", cpu, "s", at_most=60),
        Figure(f"Memory for {RUNS:,} runs on {name}", memory, "MiB", at_most=150),
        Figure(f"95th percentile of lists beside a backtest on {name}", meanwhile / before, "×", at_most=SLOWER),
    ]


def _answer(command: dict[str, Any]) -> dict[str, Any]:
    return _fill(command["fill"]) if "fill" in command else _judge(command["backtest"])


def _fill(runs: int) -> dict[str, Any]:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from benchmarks.recording import store_runs
    from benchmarks.work import FLOW
    from flows.examples import load_examples, load_sample_input
    from flows.models import Flow
    from runs.models import Attempt
    from runs.rollup import count_ended_runs

    load_examples()
    flow, sample = Flow.objects.select_related("live_version").get(name=FLOW), load_sample_input(FLOW)
    for _ in range(runs // AT_A_TIME):
        store_runs(flow, sample, AT_A_TIME)
    while count_ended_runs():
        pass
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return {"attempts": Attempt.objects.count(), "session": client.cookies["sessionid"].value}


def _judge(runs: int) -> dict[str, Any]:
    """Judge by the same definition without its first audit, as one task would that has time enough."""
    from benchmarks.work import FLOW
    from flows.models import Flow
    from runs.backtests.requests import request_backtest
    from runs.backtests.work import work_on

    flow = Flow.objects.select_related("live_version").get(name=FLOW)
    assert flow.live_version is not None
    spec = flow.live_version.flow_spec
    steps = [step.model_copy(update={"audits": step.audits[1:]}) for step in spec.steps]
    backtest = request_backtest(flow=flow, candidate=spec.model_copy(update={"steps": tuple(steps)}), limit=runs)
    cpu, wall = time.process_time(), time.perf_counter()
    work_on(backtest.pk, timeout=3_600)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    backtest.refresh_from_db()
    assert (backtest.state, backtest.position) == ("done", runs), backtest.problem
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu": cpu, "wall": wall, "memory": memory}


def main() -> None:
    """Serve commands until there are no more."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    for answer in chain([{}], (_answer(json.loads(line)) for line in sys.stdin)):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
