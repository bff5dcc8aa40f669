"""Overview and pages of flows read no big table from end to end: what the database plans for each of their queries."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.models import RunStatus
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import HTMX

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

BIG_TABLES = "runs_run|runs_step|runs_attempt|runs_issue|runs_tokenusage|runs_daily[a-z]+"
NEWEST = 'FROM "runs_run" ORDER BY 1 DESC LIMIT 1'
ADDRESSES = (
    "/",
    "/flows/",
    "/flows/colour-theme/?period=12m",
    "/flows/colour-theme/?period=7d&version=1&model=gpt-5-mini&sort=cost",
    "/flows/idle/",
)


@pytest.fixture
def _history(db: None) -> None:
    run = make_retried_run(status=RunStatus.FAILED)
    make_run(run.version)
    make_version(make_page_flow(name="idle"))
    for days in range(3):
        add_runs(run.version, day_ago(days), succeeded=1, cost="1")
        add_steps(run.version, day_ago(days), begun=1, attempts=1)
        add_audit(run.version, day_ago(days), "Hex colours", fired=1)
        add_issues(run.version, day_ago(days), "hex_format", issues=1)


def list_scans(sql: str) -> list[str]:
    """The big tables that the database would read from end to end for a query, though it tries not to."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # Few rows are always read whole, unless that is made dear.
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {sql}")
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = on")
    # A covering index that is read for its first entry only is no scan of a table.
    return re.findall(rf"(?:Seq Scan on|SCAN) (?:{BIG_TABLES})\b(?! USING)", plan)


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize("address", ADDRESSES)
def test_every_query_goes_through_an_index(viewer: Client, address: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        page = viewer.get(address).content.decode()
        if found := re.search(r'hx-get="(/overview/live[^"]+)"', page):
            viewer.get(found[1], headers=HTMX)
    asked = [query["sql"] for query in queries.captured_queries if query["sql"].startswith("SELECT")]
    assert any("runs_daily" in sql for sql in asked)
    # SQLite calls it a scan too if only the newest row is read.
    assert {sql: scans for sql in asked if not sql.endswith(NEWEST) and (scans := list_scans(sql))} == {}


@pytest.mark.usefixtures("_history")
def test_a_query_that_reads_a_table_from_end_to_end_would_be_found() -> None:
    assert list_scans("SELECT * FROM runs_dailyruns WHERE runs = 3") != []
