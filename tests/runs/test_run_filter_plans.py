"""No list of runs reads a big table: what the database plans for each filter, and on PostgreSQL what it then reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext

from runs.models import FacetKind, NumberBreak, Run
from runs.run_filters import find_runs, read_filters
from tests.engine.builders import NOON
from tests.runs.builders import make_version
from tests.runs.listed_runs import make_listed_run, store_listed_runs
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.query_plans import count_read, explain_nodes

BIG_TABLES = {"runs_run", "runs_runfacet"}
COUNT = 12_000
"""Enough that no planner finds it cheaper to read them all than to look some up."""
FACETS = {
    FacetKind.MODEL: "gpt-5",
    FacetKind.SEVERITY: "low",
    FacetKind.CODE: "length",
    FacetKind.AUDIT: "Length",
    FacetKind.LABEL: "pilot",
}

# Flow “early” has the first half of all runs, and none of the others: what a reader of the newest runs never meets.
FILTERS = (
    "flow=early",
    "flow=late&version=1",
    "status=succeeded",
    "status=failed,errored",
    "status=queued",
    "severity=low",
    "severity=critical",
    "audit=Length",
    "code=length",
    "model=gpt-5",
    "label=pilot",
    "label=nothing",
    "from=2026-11-22",
    "to=2026-11-22",
    "from=2099-01-01",
    "cost=0",
    "cost=0.018",
    "cost=500",
    "tokens=0",
    "tokens=700",
    "tokens=5000000",
    "by=grace",
)
COMBINATIONS = (
    "flow=early&status=succeeded",
    "flow=early&severity=low&model=gpt-5",
    "flow=early&by=grace&cost=0.001",
    "status=failed,errored&severity=low&tokens=700&from=2026-11-22",
    "flow=late&model=gpt-5&code=length&label=pilot&cost=0&tokens=0&by=grace&status=succeeded&to=2026-11-27",
    "model=gpt-5&severity=low&code=length",
    "label=nothing&status=succeeded",
)


def store_many_runs() -> int:
    """Runs that nearly all look the same, in two flows one after the other; gives the number in the middle."""
    early, late = (make_version(make_page_flow(name=name, title=name)) for name in ("early", "late"))
    grace = User.objects.create_user("grace")
    rows = [
        Run(
            flow_id=(early if number < COUNT // 2 else late).flow_id,
            version=early if number < COUNT // 2 else late,
            input={"topic": "tea " * 50},
            model_settings={},
            step_count=3,
            status="failed" if number % 50 == 0 else "succeeded",
            created_at=NOON + timedelta(minutes=number),
            ended_at=NOON + timedelta(minutes=number),
            is_tallied=True,
            started_by=grace,
            cost=(number % 40) / 1_000,
            total_tokens=number % 4_000,
        )
        for number in range(COUNT)
    ]
    runs = store_listed_runs(rows, [()] * COUNT)
    with connection.cursor() as cursor:
        for kind, value in FACETS.items():
            every = 10 if kind == FacetKind.LABEL else 1
            cursor.execute(
                "INSERT INTO runs_runfacet (kind, value, run_id) SELECT %s, %s, id FROM runs_run WHERE id %% %s = 0",
                [kind.value, value, every],
            )
    make_listed_run(late, status="queued")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    return runs[COUNT // 2].pk


@pytest.mark.django_db(transaction=True)
def test_every_filter_and_combination_is_read_off_indexes_at_any_depth() -> None:
    middle = store_many_runs()
    # What has no index is noticed.
    assert find_offences('SELECT "runs_run"."id" FROM "runs_run" WHERE "runs_run"."crashes" = 1') != []
    assert list_offences(("", *FILTERS, *COMBINATIONS), middle, most=7) == {}
    # As if the second half had been invented later.
    NumberBreak.objects.create(number=middle)
    by_day = [query for query in (*FILTERS, *COMBINATIONS) if "from=" in query or "to=" in query]
    assert list_offences(by_day, middle, most=10) == {}


def list_offences(queries: Iterable[str], middle: int, *, most: int) -> dict[tuple[str, str], list[str]]:
    """What is wrong with the plans of these filters; each takes up to ``most`` statements, wherever a page begins."""
    offences = {}
    for query in queries:
        filters, problems = read_filters(QueryDict(query))
        assert problems == ()
        for paging in ({}, {"before": middle}, {"after": middle}):
            with CaptureQueriesContext(connection) as captured:
                find_runs(filters, limit=51, **paging)
            statements = [sql for entry in captured if (sql := entry["sql"].strip()).startswith(("SELECT", "WITH"))]
            assert len(statements) <= most
            for sql in statements:
                if found := find_offences(sql):
                    offences[query, str(paging)] = found
    return offences


def find_offences(sql: str) -> list[str]:
    """What is wrong with a plan: big tables that it scans, and rows read beyond those that are looked at."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql.replace('%', '%%')}")
            details = [row[-1] for row in cursor.fetchall()]
            scanned = [re.match(r"SCAN (\w+)", detail) for detail in details]
            return [match.string for match in scanned if match and match[1] in BIG_TABLES]
    return [name for node in explain_nodes(sql) for name in judge_node(node)]


def judge_node(node: Any) -> Sequence[str]:
    if node.get("Relation Name") not in BIG_TABLES:
        return []
    read = count_read(node)
    named = f"{node['Node Type']} of {node['Relation Name']} by {node.get('Index Name')}"
    if node["Node Type"] == "Seq Scan":
        return [named]
    return [f"{named} reads {read} rows"] if read > COUNT / 3 else []
