"""(h) Pages over a long history: lists, filters, search, runs and statistics, over HTTP, beside the stock admin."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median
from typing import Any
from urllib.parse import urlencode

from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, print_table, say
from benchmarks.installation import creating_postgres_database
from benchmarks.setting import Setting
from benchmarks.web_server import make_environment, serving_pages

FEW, MANY = 20_000, 250_000
"""Runs; with ``--long`` the larger number."""
DEPTHS = 20
"""Places in the history that lists are opened at."""
ROUNDS = 60
"""Requests of each question."""


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of request: addresses that are asked for in turn, and how long answers may take, in milliseconds."""

    name: str
    addresses: tuple[str, ...]
    p50: float | None = None
    p95: float | None = None


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table for each database, and give the figures that have targets."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        databases = [("SQLite", "")]
        if setting.postgres is not None:
            databases.append(
                ("PostgreSQL", stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_pages")))
            )
        for database, url in databases:
            figures += _measure_database(setting, database, url, MANY if setting.is_long else FEW)
    return figures


def _measure_database(setting: Setting, database: str, url: str, runs: int) -> list[Figure]:
    data = setting.folder / f"pages-{database}"
    data.mkdir()
    environment = make_environment(data, DATABASE_URL=url) | {"DJANGO_SETTINGS_MODULE": "benchmarks.page_settings"}
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.pages", str(runs)]
    made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    known = json.loads(made.stdout)
    say(f"  {database}: {runs:,} runs with {known['attempts']:,} attempts seeded in {time.monotonic() - began:.0f} s")
    rows, figures = [], []
    with serving_pages(environment, data / "log.txt") as port:
        asker = _Asker(port, known["session"])
        for question in _list_questions(known):
            times = asker.time(question)
            p50, p95 = median(times), sorted(times)[int(len(times) * 0.95)]
            rows.append((question.name, f"{p50:.1f}", f"{p95:.1f}", _describe_target(question)))
            name = f"{database}, {question.name}"
            if question.p50 is not None:
                figures.append(Figure(f"{name}, median", p50, "ms", at_most=question.p50))
            if question.p95 is not None:
                figures.append(Figure(f"{name}, 95th percentile", p95, "ms", at_most=question.p95))
    header = ("question", "p50 ms", "p95 ms", "target")
    print_table(f"Pages over {runs:,} runs on {database}, {ROUNDS} requests of each kind", header, rows)
    return figures


def _describe_target(question: Question) -> str:
    return " / ".join("–" if limit is None else f"{limit:.0f}" for limit in (question.p50, question.p95))


def _list_questions(known: dict[str, Any]) -> list[Question]:
    depths = [known["last"] - (known["last"] - known["first"]) * number // DEPTHS for number in range(DEPTHS)]

    def ask_list(name: str, *filters: dict[str, Any]) -> Question:
        addresses = [
            f"/runs/?{urlencode(wanted | ({'before': before} if before < known['last'] else {}))}"
            for before in depths
            for wanted in filters
        ]
        return Question(name, tuple(addresses), 15, 40)

    def ask(name: str, *addresses: str, p50: float | None = None, p95: float | None = None) -> Question:
        return Question(name, addresses, p50, p95)

    flow, user = known["flow"], known["user"]
    return [
        ask("nothing but a session (workers)", "/workers/"),
        ask_list("list, any depth", {}),
        ask_list("by flow", {"flow": flow}),
        ask_list("by version", {"flow": flow, "version": 1}, {"flow": flow, "version": 3}),
        *(ask_list(f"by status {status}", {"status": status}) for status in ("succeeded", "failed", "errored")),
        ask_list("by severity", {"severity": "low"}, {"severity": "critical"}),
        ask_list("by issue code", *({"code": code} for code in known["codes"])),
        ask_list("by audit", *({"audit": audit} for audit in known["audits"])),
        ask_list("by model", {"model": "gpt-5-mini"}, {"model": "in-house-7b"}),
        ask_list("by label", {"label": "nightly"}),
        ask_list("by user", {"by": user}),
        ask_list("by date", {"from": known["middle_day"]}, {"to": known["middle_day"]}),
        ask_list("by cost", {"cost": "0.01"}, {"cost": "0.05"}),
        ask_list("by tokens", {"tokens": "20000"}),
        ask_list("by flow, status and code", *({"flow": flow, "status": "failed", "code": c} for c in known["codes"])),
        ask_list("by what seldom meets", {"status": "errored", "label": "nightly", "by": user, "severity": "high"}),
        ask_list("by what never meets", {"flow": flow, "code": "no_such_code", "cost": "0.01"}),
        *(
            ask(f"search {name}", *(f"/runs/?{urlencode({'q': words})}" for words in texts), p95=300)
            for name, texts in known["searches"].items()
        ),
        ask("run page, 7 attempts", *(f"/runs/{number}/" for number in known["runs"]), p50=25, p95=60),
        ask("run page, 200 attempts of 50 KB", f"/runs/{known['large']}/", p95=500),
        ask("flow page", f"/flows/{flow}/", f"/flows/{flow}/?period=90d", p95=80),
        ask("overview", "/", p95=80),
        ask("stock admin: list", "/plain/runs/run/", "/plain/runs/run/?p=50", "/plain/runs/run/?p=100"),
        ask("stock admin: by status", "/plain/runs/run/?status__exact=failed"),
        ask("stock admin: search", "/plain/runs/run/?q=rarity"),
    ]


class _Asker:
    """One signed-in reader with one connection."""

    def __init__(self, port: int, session: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Cookie": f"sessionid={session}"}

    def time(self, question: Question) -> list[float]:
        """Milliseconds of each request. Every address is asked once before: caches are warm, as on a busy day."""
        addresses: Sequence[str] = question.addresses
        # The stock admin counts every row for each page: a few requests tell enough.
        rounds = ROUNDS if question.p95 is not None else ROUNDS // 6
        for address in addresses if question.p95 is not None else addresses[:3]:
            self._ask(address)
        return [self._ask(addresses[number % len(addresses)]) for number in range(rounds)]

    def _ask(self, address: str) -> float:
        began = time.perf_counter()
        self._connection.request("GET", address, headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise ContenderError(f"{address} answered with status {answer.status}.")
        return (time.perf_counter() - began) * 1000


def main() -> None:
    """Set up an installation with that many runs, as the environment says; prints what the questions need."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from benchmarks.large_run import store_large_run
    from runs.models import Attempt, Issue, Run

    call_command("migrate", verbosity=0, interactive=False)
    call_command("seed_history", runs=int(sys.argv[1]), stdout=sys.stderr)
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    first, last = Run.objects.order_by("pk")[0], Run.objects.order_by("-pk")[0]
    middle = Run.objects.get(pk=(first.pk + last.pk) // 2)
    issues = Issue.objects.exclude(audit="").order_by("pk")[:200]
    long_runs = Run.objects.filter(attempt_count=7).order_by("-pk").values_list("pk", flat=True)[:20]
    json.dump(
        {
            "session": client.cookies["sessionid"].value,
            "attempts": Attempt.objects.count(),
            "first": first.pk,
            "last": last.pk,
            "flow": last.flow.name,
            "user": "seeded-linus",
            "codes": sorted({issue.code for issue in issues})[:5],
            "audits": sorted({issue.audit for issue in issues})[:5],
            "middle_day": middle.created_at.date().isoformat(),
            "runs": list(long_runs),
            "large": store_large_run(),
            "searches": {
                "rare": ["rarity", f"order-{10:07d}"],
                "frequent": ["amber", "order"],
                "two frequent": ["amber birch", "cedar dune"],
                "nothing": ["nosuchword"],
            },
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
