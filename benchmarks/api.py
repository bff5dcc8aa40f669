"""The REST API over a long history: lists, runs and statistics over HTTP, and how fast runs are created."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from benchmarks.figures import Figure, Setting, print_table
from benchmarks.seeded_history import count_runs, open_installations
from benchmarks.web import DEPTHS, ROUNDS, Question, Reader, serving_pages

API = "/api/v1"
KEY = "Idempotency-Key"
CREATED, IN_BULK = 500, 1_000
"""Runs that are created one by one, and with one request."""
PARTS, BULKS = 5, 3
"""How often it is measured: the median counts."""
LEAST_CREATED, LEAST_IN_BULK = 100, 300
"""Runs a second."""


def measure(setting: Setting) -> list[Figure]:
    """Measure, print two tables for each database, and give the figures that have targets."""
    figures: list[Figure] = []
    for database, environment, known in open_installations(setting):
        with serving_pages(environment, setting.folder / f"api-{database}.txt") as port:
            reader = Reader(port, {"Authorization": f"Bearer {known['token']}"})
            rows, found = reader.measure(_list_questions(known), database)
            created, rates = _create_runs(reader, known["order"], database)
        header = ("question", "p50 ms", "p95 ms", "target")
        title = f"API over {count_runs(setting):,} runs on {database}, {ROUNDS} requests of each kind"
        print_table(title, header, rows)
        print_table(f"Creating runs on {database}", ("how", "runs a second", "target"), created)
        figures += [*found, *rates]
    return figures


def _list_questions(known: dict[str, Any]) -> Iterator[Question]:
    depths = [known["last"] - (known["last"] - known["first"]) * number // DEPTHS for number in range(DEPTHS)]

    def ask_list(name: str, *filters: dict[str, Any]) -> Question:
        addresses = [
            f"{API}/runs?{urlencode(wanted | ({'before': before} if before < known['last'] else {}))}"
            for before in depths
            for wanted in filters
        ]
        return Question(name, tuple(addresses), 8, 15)

    def ask_runs(name: str, path: str, *, p50: float | None = None, p95: float = 80) -> Question:
        return Question(name, tuple(f"{API}/runs/{number}{path}" for number in known["runs"]), p50, p95)

    def ask(name: str, *paths: str, p95: float = 80) -> Question:
        return Question(name, tuple(f"{API}{path}" for path in paths), None, p95)

    flow, user = known["flow"], known["user"]
    yield ask_list("list, any depth", {})
    yield ask("list of 200", *(f"/runs?limit=200&before={before}" for before in depths))
    yield ask_list("by flow", {"flow": flow})
    yield ask_list("by version", {"flow": flow, "version": 1}, {"flow": flow, "version": 3})
    for status in ("succeeded", "failed", "errored"):
        yield ask_list(f"by status {status}", {"status": status})
    yield ask_list("by severity", {"severity": "low"}, {"severity": "critical"})
    yield ask_list("by issue code", *({"code": code} for code in known["codes"]))
    yield ask_list("by audit", *({"audit": audit} for audit in known["audits"]))
    yield ask_list("by model", {"model": "gpt-5-mini"}, {"model": "in-house-7b"})
    yield ask_list("by label", {"label": "nightly"})
    yield ask_list("by user", {"by": user})
    yield ask_list("by date", {"from": known["middle_day"]}, {"to": known["middle_day"]})
    yield ask_list("by cost", {"cost": "0.01"}, {"cost": "0.05"})
    yield ask_list("by tokens", {"tokens": "20000"})
    yield ask_list(
        "by flow, status and code", *({"flow": flow, "status": "failed", "code": code} for code in known["codes"])
    )
    yield ask_list("by what seldom meets", {"status": "errored", "label": "nightly", "by": user, "severity": "high"})
    yield ask_list("by what never meets", {"flow": flow, "code": "no_such_code", "cost": "0.01"})
    for name, texts in known["searches"].items():
        yield ask(f"search {name}", *(f"/runs?{urlencode({'q': words})}" for words in texts), p95=300)
    yield ask_runs("issues of a run", "/issues", p50=8, p95=15)
    yield ask_runs("issues at least high", "/issues?min_severity=high", p50=8, p95=15)
    yield ask_runs("failed attempts of a run", "/attempts?outcome=failed")
    yield ask_runs("steps of a run", "/steps")
    yield ask_runs("usage of a run", "/usage")
    yield ask_runs("run without attempts", "?attempts=none")
    yield ask_runs("run with all 7 attempts", "")
    today = datetime.now(UTC).date()
    quarter = urlencode({"from": today - timedelta(days=89), "to": today})
    yield ask("statistics of a flow", f"/flows/{flow}/statistics", f"/flows/{flow}/statistics?{quarter}&group_by=week")
    yield ask("statistics of its audits", f"/flows/{flow}/statistics/audits?{quarter}")
    yield ask("statistics, overview", "/statistics/overview")
    yield ask("usage by flow", f"/statistics/usage?{quarter}")
    yield ask("usage by version and day", f"/statistics/usage?{quarter}&group_by=version,day&flow={flow}")
    yield ask("usage by model and day", f"/statistics/usage?{quarter}&group_by=model,day")


def _create_runs(
    reader: Reader, order: dict[str, Any], database: str
) -> tuple[list[tuple[str, str, str]], list[Figure]]:
    """Create runs, with the long history beside them and no worker that takes them."""
    one = json.dumps(order).encode()
    _create_part(reader, one, has_key=True)
    without_key = median(_create_part(reader, one, has_key=False) for _ in range(PARTS))
    one_by_one = median(_create_part(reader, one, has_key=True) for _ in range(PARTS))

    inputs = [{"input": order["input"], "metadata": {"row": row}} for row in range(IN_BULK)]
    many = json.dumps({"flow": order["flow"], "runs": inputs}).encode()
    took = median(reader.post(f"{API}/runs/bulk", many, {KEY: str(uuid4())}) for _ in range(BULKS))
    in_bulk = IN_BULK * 1000 / took

    found = (("one by one", one_by_one, LEAST_CREATED), (f"{IN_BULK:,} in one request", in_bulk, LEAST_IN_BULK))
    rows = [(how, f"{rate:.0f}", f"{least}") for how, rate, least in found]
    rows.insert(1, ("one by one, without a key", f"{without_key:.0f}", ""))
    figures = [Figure(f"{database}, created {how}", rate, "runs/s", at_least=least) for how, rate, least in found]
    return rows, figures


def _create_part(reader: Reader, one: bytes, *, has_key: bool) -> float:
    """Runs that were created in a second, as the guide says (with a key that makes it safe to ask again) or without."""
    count = CREATED // PARTS
    began = time.perf_counter()
    for _ in range(count):
        reader.post(f"{API}/runs", one, {KEY: str(uuid4())} if has_key else {})
    return count / (time.perf_counter() - began)
