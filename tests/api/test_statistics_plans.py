"""Statistics over the API read no big table from end to end: what the database plans for each of their queries."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.models import RunStatus
from tests.api.asking import Script
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.test_statistics_plans import list_scans

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

ADDRESSES = (
    "flows/colour-theme/statistics",
    "flows/colour-theme/statistics?version=1&model=gpt-5-mini&group_by=week",
    "flows/colour-theme/statistics/audits?version=1&sort=cost",
    "flows/idle/statistics",
    "statistics/usage",
    "statistics/usage?group_by=version,model,day",
    "statistics/usage?group_by=day&flow=colour-theme&version=1&model=gpt-5-mini",
    "statistics/overview",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_query_goes_through_an_index(viewer: Script, address: str) -> None:
    run = make_retried_run(status=RunStatus.FAILED)
    make_run(run.version)
    make_version(make_page_flow(name="idle"))
    for days in range(3):
        add_runs(run.version, day_ago(days), succeeded=1, cost="1")
        add_steps(run.version, day_ago(days), begun=1, attempts=1)
        add_audit(run.version, day_ago(days), "Hex colours", fired=1)
        add_issues(run.version, day_ago(days), "hex_format", issues=1)
    with CaptureQueriesContext(connection) as queries:
        assert viewer.get(address).status_code == 200
    asked = [query["sql"] for query in queries.captured_queries if query["sql"].startswith("SELECT")]
    assert any("runs_daily" in sql for sql in asked)
    assert {sql: scans for sql in asked if (scans := list_scans(sql))} == {}
    if "overview" not in address:
        told = " ".join(asked)
        for table in ("runs_run", "runs_step", "runs_attempt", "runs_issue", "runs_tokenusage"):
            assert f'FROM "{table}"' not in told
