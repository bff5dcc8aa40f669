"""Deliveries and the trail are read off indexes, whatever is asked for, by API and pages: as it is planned, and on
PostgreSQL read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs import paging
from runs.audit_log.events import TrailAction
from runs.models import DeliveryState, Run, TrailEntry, WebhookDelivery
from tests.api.asking import Script
from tests.engine.builders import NOON
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.query_plans import count_read, explain_nodes

pytestmark = pytest.mark.sql

COUNT = 12_000
"""Enough that no planner finds it cheaper to read them all than to look some up."""
MOST_READ = COUNT // 3
BIG_TABLES = {"runs_run", "runs_webhookdelivery", "runs_auditentry"}

# Flow “early”, action “flow_changed” and user “ada” have the first few rows: what a reader of the newest never meets.
DELIVERIES = (
    "",
    "flow=early",
    "flow=late",
    "status=failed",
    "status=delivered,failed,waiting",
)
TRAIL = (
    "",
    "to=2026-11-21",
    "from=2026-11-22",
    "from=2099-01-01",
    "from=2026-11-22&to=2026-11-22",
    "kind=flow",
    "kind=run",
    "kind=flow&id=7",
    "kind=run&id=7&to=2026-11-21",
    "actor=ada",
    "actor=bob&action=flow_changed",
    "actor=bob&kind=flow&to=2026-11-22",
    "action=flow_changed",
    "action=flow_changed,run_started",
    "action=flow_changed,run_started,run_cancelled&kind=flow&from=2026-11-22",
    f"action={','.join(TrailAction.values)}",
)

# What pages can ask for besides: things by their number alone, and filters that leave next to nothing together.
TRAIL_PAGES = (
    *TRAIL[:-3],
    "id=7&actor=ada",
    "id=7&action=run_cancelled",
    "actor=bob&action=flow_changed&kind=run",
    "actor=ada&action=run_started&to=2026-11-21",
    "actor=nobody&kind=run",
)


def store_many_rows() -> tuple[int, int]:
    """Runs with a delivery and an entry each; gives the numbers of the delivery and the entry in the middle."""
    early, late = (make_version(make_page_flow(name=name, title=name)) for name in ("early", "late"))
    versions = [early if number < 100 else late for number in range(COUNT)]
    runs = Run.objects.bulk_create(
        Run(
            flow_id=version.flow_id,
            version=version,
            input={"topic": "tea " * 50},
            model_settings={},
            step_count=1,
            status="succeeded",
            ended_at=NOON,
            is_counted=True,
        )
        for version in versions
    )
    states = {0: "failed", 1: "waiting"}
    deliveries = WebhookDelivery.objects.bulk_create(
        WebhookDelivery(
            run=run,
            flow_id=run.flow_id,
            event="run.succeeded",
            url="https://example.com/",
            state=states.get(number // 50, "delivered"),
        )
        for number, run in enumerate(runs)
    )
    entries = TrailEntry.objects.bulk_create(
        TrailEntry(
            at=NOON + timedelta(minutes=number // 4),
            actor_name="ada" if number < 50 else "bob",
            action="flow_changed" if number < 100 else "run_started",
            object_kind="flow" if number < 100 else "run",
            object_id=str(number % 50),
        )
        for number in range(COUNT)
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    return deliveries[COUNT // 2].pk, entries[COUNT // 2].pk


@pytest.mark.django_db(transaction=True)
def test_every_filter_is_read_off_indexes_at_any_depth(administrator: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "WINDOW", COUNT // 8)
    delivery, entry = store_many_rows()
    # What has no index is noticed.
    assert find_offences("SELECT id FROM runs_auditentry WHERE address = '' ORDER BY token_name LIMIT 9") != []
    run = WebhookDelivery.objects.get(pk=delivery).run_id
    delivery_pages = ("", *(f"state={state}" for state in DeliveryState), f"run={run}")
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    offences = {}
    for client, address, queries, middle in (
        (administrator, "webhook-deliveries", DELIVERIES, delivery),
        (administrator, "trail", TRAIL, entry),
        (browser, "/webhooks/", delivery_pages, delivery),
        (browser, "/trail/", TRAIL_PAGES, entry),
    ):
        size = "" if client is browser else "limit=20&"
        for query in queries:
            for place in (size, f"{size}before={middle}", f"{size}after={middle}"):
                with CaptureQueriesContext(connection) as captured:
                    answer = client.get(f"{address}?{query}&{place}")
                assert answer.status_code == 200, answer.content
                statements = [
                    one["sql"] for one in captured if any(f'FROM "{table}"' in one["sql"] for table in BIG_TABLES)
                ]
                assert len(statements) <= 14
                for sql in statements:
                    if found := find_offences(sql):
                        offences[address, query, place] = [*found, sql]
    assert offences == {}


def find_offences(sql: str) -> list[str]:
    """What is wrong with a plan: rows that it sorts before it takes a few, or that it reads beyond the bound."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql.replace('%', '%%')}")
            details = [row[-1] for row in cursor.fetchall()]
            # A scan in the order of a key ends with the page, and so does the sorting of what the page was found to be.
            return [one for one in details if "TEMP B-TREE" in one] if "LIMIT" in sql else []
    return [name for node in explain_nodes(sql) for name in judge_node(node)]


def judge_node(node: Any) -> Sequence[str]:
    if node.get("Relation Name") not in BIG_TABLES:
        return []
    read = count_read(node)
    named = f"{node['Node Type']} of {node['Relation Name']} by {node.get('Index Name')}"
    return [f"{named} reads {read} rows"] if read > MOST_READ else []
