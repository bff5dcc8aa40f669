"""What the queue does by itself: every hour, one message at a time, whatever is wrong with a flow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import OrmQ, Schedule

from runs.locks import RETENTION, acquire
from runs.models import Lock, Run
from runs.retention import policy, purging, tasks
from runs.retention.leftovers import Leftover, list_leftovers
from tests.runs.retention.aged_runs import store_aged_runs

pytestmark = pytest.mark.django_db


class TestSchedule:
    def test_the_queue_sees_to_it_every_hour(self) -> None:
        schedule = Schedule.objects.get(name="toolflow retention")
        assert (schedule.func, schedule.schedule_type) == ("runs.retention.tasks.purge_due", Schedule.HOURLY)

    def test_a_flow_that_something_is_wrong_with_keeps_no_other(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = store_aged_runs(6)
        settings.TOOLFLOW_KEEP_DAYS = 1
        bad = min((run.flow for run in runs), key=lambda flow: flow.name)
        make_session(seconds=-60)
        real = policy.find_due

        def find_due(flow_id: int, *arguments: Any) -> Any:
            if flow_id == bad.pk:
                raise ValueError("nonsense")
            return real(flow_id, *arguments)

        monkeypatch.setattr(purging, "find_due", find_due)
        assert tasks.purge_due().endswith("and 1 other rows.")
        assert {run.flow_id for run in Run.objects.all()} == {bad.pk}
        (record,) = caplog.records
        assert record.getMessage().startswith(f"Retention could not see to the runs of the flow “{bad.name}”")

    def test_rows_of_one_kind_that_cannot_go_keep_no_others(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(_limit: object) -> Any:
            raise ValueError("nonsense")

        make_session(seconds=-60)
        real = list_leftovers()
        monkeypatch.setattr(tasks, "list_leftovers", lambda: [Leftover("bad rows", timedelta(0), refuse), *real])
        assert tasks.purge_due().endswith("and 1 other rows.")
        assert "Retention could not see to bad rows" in caplog.text

    def test_one_message_takes_away_what_is_due(self, settings: Any) -> None:
        store_aged_runs(6)
        settings.TOOLFLOW_KEEP_DAYS = 1
        assert tasks.purge_due() == "Retention took away 6 runs or their outputs, and 0 other rows."
        assert not Run.objects.exists() and not OrmQ.objects.exists()

    def test_a_message_whose_time_is_up_sends_another_one(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        store_aged_runs(6)
        settings.TOOLFLOW_KEEP_DAYS = 1
        monkeypatch.setattr(tasks, "PATIENCE", 0.0)
        tasks.purge_due()
        assert [message.func() for message in OrmQ.objects.all()] == ["runs.retention.tasks.purge_due"]
        assert 0 < Run.objects.count() < 6


class TestOneMessageAtATime:
    @pytest.fixture(autouse=True)
    def _is_never_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "PATIENCE", 0.0)

    def test_however_many_hours_it_takes_there_is_one(self) -> None:
        tasks.purge_due()
        for _ in range(3):
            # One process takes them one after the other: that of the hour, and the one that was passed on.
            assert tasks.purge_due() == "Retention is under way already."
            (number,) = take_messages()
            tasks.purge_due(number)
        assert len(take_messages()) == 1

    def test_a_message_that_comes_twice_counts_once(self) -> None:
        tasks.purge_due()
        (number,) = take_messages()
        tasks.purge_due(number)
        assert tasks.purge_due(number) == "Retention is under way already."
        assert len(take_messages()) == 1

    def test_one_that_got_lost_is_replaced_and_void_should_it_come_after_all(self) -> None:
        tasks.purge_due()
        (lost,) = take_messages()
        Lock.objects.update(held_until=timezone.now() - timedelta(seconds=1))
        tasks.purge_due()
        assert tasks.purge_due(lost) == "Retention is under way already."
        assert len(take_messages()) == 1

    def test_one_that_took_so_long_that_another_has_begun_passes_nothing_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def begin_another() -> list[Leftover]:
            Lock.objects.update(held_until=timezone.now() - timedelta(seconds=1))
            assert acquire(RETENTION, tasks.LEASE)
            return []

        monkeypatch.setattr(tasks, "list_tasks", lambda now: [])
        monkeypatch.setattr(tasks, "list_leftovers", begin_another)
        tasks.purge_due()
        assert take_messages() == []

    def test_without_a_broker_the_next_hour_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise ConnectionError("away")

        with monkeypatch.context() as patch:
            patch.setattr(tasks, "async_task", refuse)
            tasks.purge_due()
        tasks.purge_due()
        assert len(take_messages()) == 1

    def test_what_is_done_leaves_the_turn_to_the_next_hour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "PATIENCE", 60.0)
        for _ in range(2):
            assert tasks.purge_due().startswith("Retention took away 0 runs")
        assert take_messages() == []


def take_messages() -> list[Any]:
    """The numbers that retention passed itself on by; the messages are gone then."""
    messages = list(OrmQ.objects.all())
    OrmQ.objects.all().delete()
    assert {message.func() for message in messages} <= {"runs.retention.tasks.purge_due"}
    return [number for message in messages for number in message.task["args"]]


def make_session(*, seconds: int) -> None:
    """Somebody whose sign-in expires in so many seconds."""
    store: type[SessionStore] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    session = store()
    session[SESSION_KEY] = str(User.objects.create_user("olga").pk)
    session.set_expiry(seconds)
    session.save()
