"""Addresses whose query is not valid: what is wrong is named, and the page shows what it shows without it."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from runs.models import AuditEntry, WebhookDelivery
from runs.statistics.counting import count_runs
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page

QUERIES = {
    "/": ["runs=x"],
    "/runs/": [
        "status=lost", "flow=%3Cscript%3E", "before=abc", "before=99999999999999999999", "after=-1",
        "after=1&before=9", "from=yesterday", "label=%00", "by=%E2%80%AEada",
        "bogus=1&statsu=failed", "%3Cb%3E%E2%80%AE=",
    ],
    "/issues/": ["severity=grave", "period=5d", "step=x", "version=1", "flow=lost", "status=failed", "order=best"],
    "/flows/": ["page=0", "page=x", "page=10001", "page=1" + "9" * 5_000, "page=%00", "page=٣"],
    "/flows/colour-theme/": [
        "period=1y", "version=9", "version=99999999999999999999", "model=nobody", "runs=x", "measure=%00",
        "sort=%E2%80%AEx", "measure=cost&runs=real", "verison=9", "a=1&b=2&c=3&" + "e" * 99,
    ],
    "/webhooks/": [
        "state=lost", "run=tea", "before=-1", "before=" + "9" * 40, "before=3&after=1", "state=%00", "run=%E2%80%AE",
    ],
    "/trail/": ["action=dance", "kind=cat", "from=yesterday", "to=0001-01-01", "from=9999-12-31", "actor=%00"],
}  # fmt: skip
SHOWN = {"/issues/": "Hex colours", "/webhooks/": "hooks.example.com", "/trail/": "Nightly"}
"""What each page shows, if it is not the flow."""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("address", "query"), [(address, query) for address, queries in QUERIES.items() for query in queries]
)
def test_what_is_not_valid_is_named_and_left_out(admin_client: Client, address: str, query: str) -> None:
    attempt = make_attempt(1, 1, "failed", issues=(make_issue("high", audit="Hex colours"),))
    run = make_stored_run(attempt, ended_at=timezone.now())
    count_runs([run.pk])
    WebhookDelivery.objects.create(run=run, flow=run.flow, event="run.failed", url="", host="hooks.example.com")
    AuditEntry.objects.create(action="run_started", actor_name="ada", object_kind="run", object_label="Nightly")
    page = get_page(admin_client, f"{address}?{query}")
    assert "message-warning" in page and SHOWN.get(address, "Colour theme") in page.partition("<main")[2]
    assert not [text for text in ("<script>", "<b>", "\x00", "\u202e") if text in page.partition("<main")[2]]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address",
    [
        "/trail/export.csv?from=yesterday", "/trail/export.csv?to=0001-01-01", "/runs/export/csv?status=lost",
        "/runs/export/csv?flow=%3Cscript%3E", "/runs/export/csv?with=attempts", "/runs/export/jsonl?with=everything",
    ],
)  # fmt: skip
def test_no_file_is_made_of_a_query_that_is_not_valid(admin_client: Client, address: str) -> None:
    answer = admin_client.get(address)
    assert answer.status_code == 400 and b"<script>" not in answer.content.partition(b"<main")[2]
    assert not AuditEntry.objects.filter(action__in=("trail_exported", "exported")).exists()
