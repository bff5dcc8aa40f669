"""HEAD, with which monitors and link checkers ask: what GET answers, without the body and without what it does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.models import Flow
from runs.models import AuditEntry
from tests.site.test_permissions import ADMINISTRATOR, World, list_rules, world

__all__ = ["world"]

pytestmark = pytest.mark.django_db

_CHANGE = re.compile(r'(INSERT INTO|UPDATE|DELETE FROM) "(flows|runs)_')


def read_headers(answer: Any) -> dict[str, str]:
    """The headers, without those that are new for each answer."""
    return {name: text for name, text in answer.headers.items() if name not in {"Expires", "X-Request-ID"}}


def test_head_answers_what_get_does_without_a_body_and_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pages say how long ago something was.
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    problems = []
    # Django's own redirects users who are signed in already, and does so for GET alone.
    for address in list_rules().keys() - {"admin/login/"}:
        asked = world.fill(address)
        with CaptureQueriesContext(connection) as for_get:
            expected: Any = world.ask(ADMINISTRATOR, "GET", asked)
        with CaptureQueriesContext(connection) as for_head:
            found: Any = world.ask(ADMINISTRATOR, "HEAD", asked)
        if found.status_code != expected.status_code or read_headers(found) != read_headers(expected):
            problems.append(
                f"{address}: {found.status_code} {read_headers(found)} instead of "
                f"{expected.status_code} {read_headers(expected)}"
            )
        if found.getvalue() if found.streaming else found.content:
            problems.append(f"{address}: a body")
        if len(for_head) > len(for_get):
            problems.append(f"{address}: {len(for_head)} queries instead of {len(for_get)}")
        problems += [f"{address}: {query['sql'][:120]}" for query in for_head if _CHANGE.match(query["sql"])]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "address",
    [
        "/runs/export/jsonl?with=attempts",
        "/admin/flows/flow/<flow_id>/download/",
        "/api/v1/runs/export?format=csv",
        "/api/v1/flows/idle/versions/1?format=yaml",
    ],
)
def test_a_download_that_is_only_asked_about_is_not_begun_and_leaves_no_trail(world: World, address: str) -> None:
    client = world.sign_in(ADMINISTRATOR)
    before = AuditEntry.objects.count()
    answer: Any = client.head(address.replace("<flow_id>", str(Flow.objects.get(name="idle").pk)))
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith("attachment; ")
    assert AuditEntry.objects.count() == before
    # The length of a file that was not made is unknown.
    assert answer.headers.get("Content-Length") != "0"
