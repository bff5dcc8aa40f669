"""Whom it is told that a run has ended: made with the rollup, once, and never lost."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage

from runs import rollup
from runs.models import Run, WebhookDelivery
from runs.rollup import count_ended_runs
from runs.webhooks.messages import SEND_TASK, DueWatch
from runs.webhooks.sender_lock import SenderLock
from tests.runs.builders import make_run, make_version
from tests.runs.webhooks.deliveries import make_ended_run, set_flow_address

pytestmark = pytest.mark.django_db

OWN, OF_FLOW = "https://hooks.example.com/run", "https://hooks.example.com/flow"


def read_deliveries() -> list[tuple[int, str, str]]:
    return sorted(WebhookDelivery.objects.values_list("run_id", "event", "url"))


def list_messages() -> list[str]:
    return [SignedPackage.loads(row.payload)["func"] for row in OrmQ.objects.order_by("pk")]


@pytest.mark.parametrize("status", ["succeeded", "failed", "errored", "cancelled"])
def test_each_way_to_end_is_told(status: str) -> None:
    run = make_ended_run(status=status, webhook_url=OWN)
    count_ended_runs()
    assert read_deliveries() == [(run.pk, f"run.{status}", OWN)]


def test_a_run_is_told_to_its_own_address_and_to_that_of_its_flow() -> None:
    run = make_ended_run(webhook_url=OWN)
    set_flow_address(run, OF_FLOW)
    other = make_ended_run(run.version)
    count_ended_runs()
    assert read_deliveries() == [
        (run.pk, "run.failed", OF_FLOW),
        (run.pk, "run.failed", OWN),
        (other.pk, "run.failed", OF_FLOW),
    ]


def test_an_address_that_both_have_is_told_once() -> None:
    run = make_ended_run(webhook_url=OWN)
    set_flow_address(run, OWN)
    count_ended_runs()
    assert len(read_deliveries()) == 1


def test_nobody_is_told_of_runs_that_go_on_or_have_no_address() -> None:
    version = make_version()
    make_run(version, webhook_url=OWN)
    make_ended_run(version)
    count_ended_runs()
    assert read_deliveries() == []


def test_a_run_cancelled_in_the_queue_is_told() -> None:
    run = make_run(webhook_url=OWN)
    run.request_cancel()
    count_ended_runs()
    assert read_deliveries() == [(run.pk, "run.cancelled", OWN)]


def test_a_run_that_is_counted_again_is_not_told_again() -> None:
    run = make_ended_run(webhook_url=OWN)
    count_ended_runs()
    WebhookDelivery.objects.update(state="delivered")
    Run.objects.update(is_counted=False)
    count_ended_runs()
    assert read_deliveries() == [(run.pk, "run.failed", OWN)]
    assert WebhookDelivery.objects.get().state == "delivered"


def test_what_ended_long_ago_is_no_news() -> None:
    run = make_ended_run(webhook_url=OWN, ended_at=timezone.now() - timedelta(days=4))
    recent = make_ended_run(run.version, webhook_url=OWN, ended_at=timezone.now() - timedelta(days=2))
    count_ended_runs()
    assert read_deliveries() == [(recent.pk, "run.failed", OWN)]


def test_a_crash_before_the_run_is_marked_leaves_both_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_ended_run(webhook_url=OWN)

    def die(run_ids: Any) -> int:
        make_deliveries(run_ids)
        raise SystemExit

    make_deliveries = rollup.make_deliveries
    monkeypatch.setattr(rollup, "make_deliveries", die)
    with pytest.raises(SystemExit):
        count_ended_runs()
    assert (read_deliveries(), Run.objects.get(pk=run.pk).is_counted) == ([], False)
    monkeypatch.setattr(rollup, "make_deliveries", make_deliveries)
    count_ended_runs()
    assert len(read_deliveries()) == 1


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com/" + "ü" * 1_900, "no address", "http://[", "https://" + "h" * 300]
)
def test_no_address_keeps_a_run_from_being_counted(url: str) -> None:
    run = make_ended_run(webhook_url=url)
    assert count_ended_runs() == 1
    assert WebhookDelivery.objects.get(run=run).state == "waiting"


def test_it_costs_one_query_for_all_runs_that_have_no_address() -> None:
    version = make_version()
    counts = []
    for count in (1, 20):
        runs = [make_ended_run(version).pk for _ in range(count)]
        with CaptureQueriesContext(connection) as queries:
            rollup.make_deliveries(runs)
        counts.append(len(queries))
    assert counts == [1, 1]


class TestWaking:
    def test_a_worker_is_woken_once_for_all_that_ended_together(self, django_capture_on_commit_callbacks: Any) -> None:
        version = make_version()
        for _ in range(3):
            make_ended_run(version, webhook_url=OWN)
        with django_capture_on_commit_callbacks(execute=True):
            count_ended_runs()
        assert list_messages() == [SEND_TASK]

    def test_nobody_is_woken_where_there_is_nothing_to_tell(self, django_capture_on_commit_callbacks: Any) -> None:
        make_ended_run()
        with django_capture_on_commit_callbacks(execute=True):
            count_ended_runs()
        assert list_messages() == []

    def test_a_sender_at_work_needs_no_message(self, django_capture_on_commit_callbacks: Any) -> None:
        make_ended_run(webhook_url=OWN)
        lock = SenderLock.take()
        assert lock is not None
        with django_capture_on_commit_callbacks(execute=True):
            count_ended_runs()
        lock.release()
        assert list_messages() == []

    def test_a_broker_that_is_away_keeps_no_run_from_being_counted(
        self, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*args: Any) -> None:
            raise ConnectionError("no broker")

        monkeypatch.setattr("runs.webhooks.messages.async_task", fail)
        make_ended_run(webhook_url=OWN)
        with django_capture_on_commit_callbacks(execute=True):
            assert count_ended_runs() == 1
        assert "webhooks wait for the next sweep: no broker" in caplog.text

    def test_a_retry_whose_time_has_come_wakes_a_sender_and_not_every_second(
        self, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = [100.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        make_ended_run(webhook_url=OWN)
        count_ended_runs()
        WebhookDelivery.objects.update(next_try_at=timezone.now() + timedelta(seconds=30))
        watch, woken = DueWatch(), []
        for seconds, is_due in ((0, False), (0.5, True), (1, True), (2, True), (3.9, True), (4.1, True)):
            clock[0] = 100 + seconds
            if is_due:
                WebhookDelivery.objects.update(next_try_at=timezone.now() - timedelta(seconds=2))
            with django_capture_on_commit_callbacks(execute=True):
                watch.look()
            woken.append(len(list_messages()))
        assert woken == [0, 0, 1, 1, 1, 2]

    def test_message_and_schedule_name_what_is_there(self) -> None:
        schedule = Schedule.objects.get(name="toolflow webhooks")
        assert (schedule.schedule_type, schedule.minutes, schedule.func) == ("I", 1, SEND_TASK)
        assert callable(import_string(SEND_TASK))
