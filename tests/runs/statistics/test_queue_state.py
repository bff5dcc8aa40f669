"""The figures by which people and machines watch the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from runs.models import RunStatus
from runs.models.run import in_future
from runs.statistics.queue_state import fetch_queue_state, runs_without_worker
from tests.runs.builders import make_run, make_version, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

MINUTE = timedelta(minutes=1)
SOON, EARLIER = in_future(MINUTE), in_future(-MINUTE)


@pytest.mark.parametrize(
    ("fields", "ready", "later", "waiting"),
    [
        ({}, 1, 0, 0),
        ({"available_at": SOON}, 0, 1, 0),
        ({"available_at": SOON, "waiting_for": "Waits for a limit."}, 0, 0, 1),
        ({"available_at": EARLIER, "waiting_for": "Waits for a limit."}, 1, 0, 0),
        ({"waiting_since": Now(), "waiting_for": "Waits for the plug-in x."}, 0, 0, 1),
        ({"status": RunStatus.CANCELLED, "ended_at": Now()}, 0, 0, 0),
    ],
)
def test_queued_runs_are_ready_or_wait_for_a_time_or_for_something_else(
    fields: dict[str, Any], ready: int, later: int, waiting: int
) -> None:
    make_run(**fields)
    found = fetch_queue_state()
    assert (found.ready, found.later, found.waiting) == (ready, later, waiting)


def test_a_long_backlog_is_counted_up_to_a_limit_in_four_queries() -> None:
    version = make_version()
    for minutes in range(6):
        make_run(version, available_at=in_future(-minutes * MINUTE))
        make_run(version, available_at=SOON)
        make_run(version, waiting_since=Now(), waiting_for="Waits.")
        make_run(version, available_at=SOON, waiting_for="Waits.")
    with CaptureQueriesContext(connection) as queries:
        found = fetch_queue_state(limit=4)
    assert len(queries) == 4
    assert found.ready == 4 and 4 <= found.later + found.waiting <= 8
    assert found.more == {"ready", "later", "waiting"}
    assert found.oldest_ready is not None and found.oldest_ready >= 5 * MINUTE
    everything = fetch_queue_state()
    assert (everything.ready, everything.later, everything.waiting) == (6, 6, 12) and not everything.more


@pytest.mark.parametrize(
    ("fields", "workers", "is_unattended"),
    [
        ({"available_at": EARLIER}, [], True),
        ({"available_at": EARLIER}, [{"heartbeat_at": EARLIER}], True),
        ({"available_at": EARLIER}, [{}], False),
        ({}, [], False),
        ({"available_at": SOON}, [], False),
        ({"available_at": EARLIER, "status": RunStatus.CANCELLED, "ended_at": Now()}, [], False),
    ],
)
def test_a_run_that_is_ready_for_long_without_a_worker_is_unattended(
    fields: dict[str, Any], workers: list[dict[str, Any]], is_unattended: bool
) -> None:
    make_run(**fields)
    for worker in workers:
        make_worker(**worker)
    assert fetch_queue_state().is_unattended is is_unattended
    assert runs_without_worker().exists() is is_unattended


def test_the_age_is_that_of_the_run_that_has_been_ready_longest() -> None:
    version = make_version()
    for minutes in (3, 10, 7):
        make_run(version, available_at=in_future(-minutes * MINUTE))
    make_run(version, available_at=in_future(-30 * MINUTE), waiting_since=Now(), waiting_for="Waits.")
    age = fetch_queue_state().oldest_ready
    assert age is not None and 10 * MINUTE <= age < 11 * MINUTE
