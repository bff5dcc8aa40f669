"""No page does more work because there is more history: neither scans nor counts nor walks along an index.

Query counts and plans don't show that: a count that is read off an index has a fine plan. SQLite tells how many steps
its virtual machine takes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from runs.models import Run
from runs.pages import overview
from runs.seeding import seed_history, storing

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif("postgres" in os.environ.get("DATABASE_URL", ""), reason="only SQLite tells of its work"),
]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
FEW, MANY = 300, 900
"""Runs of the history: with fewer, there is less than a page looks at."""
DAYS = 3
"""That they are spread over: statistics of a day and a version are the same few rows."""
EACH = 20
"""Steps after which SQLite tells of them."""
MORE = 1.25
"""How much more work a page may be with three times the history: lists of 50 rows hold other rows."""
SLACK = 3_000
"""Steps that are always allowed, since small pages vary: an index is deeper, a list fuller, a row has more issues."""

PAGES = (
    "/",
    "/runs/",
    "/runs/?status=failed",
    "/runs/?severity=high&model=gpt-5",
    "/runs/?cost=0.003",
    "/runs/?q=invoice",
    "/runs/?code=schema_mismatch&status=succeeded&label=nightly",
    "/runs/?from=2026-11-15&to=2026-11-16",
    "/flows/",
    "/workers/",
    "/webhooks/",
    "/trail/",
    "/runs/bulk/?status=failed",
    "/flows/seeded-colour-theme/",
    "/flows/seeded-colour-theme/versions/2/",
    "/runs/{run}/",
    "/runs/{run}/steps/1/attempts/1/",
    "/runs/compare/?a={run}&b={other}",
    "/api/v1/runs",
    "/api/v1/runs?status=failed&limit=20",
    "/api/v1/runs/{run}",
    "/api/v1/runs/{run}/issues",
)


@contextmanager
def counting_work() -> Iterator[Counter[str]]:
    """Count the steps that SQLite takes, roughly."""
    done: Counter[str] = Counter()

    def note() -> int:
        done["steps"] += EACH
        return 0

    connection.ensure_connection()
    connection.connection.set_progress_handler(note, EACH)
    try:
        yield done
    finally:
        connection.connection.set_progress_handler(None, 0)


def measure_work(viewer: Client, address: str) -> int:
    with counting_work() as done:
        answer = viewer.get(address)
        assert answer.status_code == 200, (address, answer.status_code)
        b"".join(answer) if answer.streaming else answer.content
    return done["steps"]


@pytest.fixture
def viewer(client: Client) -> Client:
    user = User.objects.create_user("ada")
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return client


def measure_pages(viewer: Client) -> dict[str, int]:
    newest = Run.objects.order_by("-pk").first()
    assert newest is not None
    other = Run.objects.filter(flow=newest.flow_id).exclude(pk=newest.pk).latest("pk")
    names = {"run": newest.pk, "other": other.pk}
    work = {}
    for page in PAGES:
        address = page.format(**names)
        # What is kept between requests is there before.
        viewer.get(address)
        work[page] = measure_work(viewer, address)
    return work


def measure_count() -> int:
    with counting_work() as done:
        Run.objects.filter(status="failed").count()
    return done["steps"]


def test_no_page_works_more_because_there_is_more_history(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # The smaller history has fewer failed runs than the overview samples. Each course is a run of the engine.
    monkeypatch.setattr(overview, "SAMPLE_SIZE", 2)
    monkeypatch.setattr(storing, "COURSES", 6)
    # Both are of the same variety.
    monkeypatch.setattr(storing, "MIN_COURSES", storing.COURSES)
    seed_history(runs=FEW, until=NOON, days=DAYS)
    few, few_counted = measure_pages(viewer), measure_count()
    # Created after the others, all within an hour.
    seed_history(runs=MANY - FEW, until=NOON + timedelta(hours=1), days=1 / 24)
    many, many_counted = measure_pages(viewer), measure_count()
    grown = {page: (few[page], many[page]) for page in PAGES if many[page] > few[page] * MORE + SLACK}
    assert grown == {}
    # What does grow is noticed: to count what an index holds.
    assert many_counted > few_counted * MORE
