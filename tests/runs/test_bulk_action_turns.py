"""Long bulk actions go on turn by turn, and nothing happens twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import Schedule

from runs.bulk_actions import working
from runs.bulk_actions.tasks import go_on, go_on_with_all
from runs.models import BulkAction, Run, RunStatus, WorkState
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version
from tests.runs.bulk_requests import cancel, counts, make_ended_run, run_again, started_by, take_messages

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


class TestGoingOn:
    def test_a_long_one_goes_from_message_to_message_until_all_is_done_once(self, hurried: None) -> None:
        version = make_version()
        for _ in range(7):
            make_ended_run(version)
        action = run_again()
        assert counts(action) == (WorkState.WORKING, 2, 0, 0)
        turns = 0
        while messages := take_messages():
            assert len(messages) == 1
            go_on(*messages[0])
            turns += 1
        action.refresh_from_db()
        assert counts(action) == (WorkState.DONE, 7, 0, 0)
        assert (turns, len(started_by(action)), action.percent) == (3, 7, 100)

    def test_a_message_that_comes_twice_does_nothing_the_second_time(self, hurried: None) -> None:
        version = make_version()
        for _ in range(7):
            make_ended_run(version)
        action = run_again()
        ((action_id, turn),) = take_messages()
        go_on(action_id, turn)
        go_on(action_id, turn)
        action.refresh_from_db()
        assert action.done == 4
        assert len(take_messages()) == 1

    def test_after_a_kill_it_goes_on_behind_its_last_batch(
        self, hurried: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = make_version()
        for number in range(6):
            make_ended_run(version, input={"topic": str(number)})
        action = run_again()
        take_messages()

        # Its worker died: nobody sends a message, until the queue's schedule finds it silent.
        assert go_on_with_all() == 0
        BulkAction.objects.update(touched_at=timezone.now() - timedelta(minutes=1))
        assert go_on_with_all() == 1
        assert go_on_with_all() == 0

        # The next one dies in the midst of its batch: nothing of that is stored.
        def die(*_: Any, **__: Any) -> None:
            raise OperationalError("the server closed the connection unexpectedly")

        ((action_id, turn),) = take_messages()
        with monkeypatch.context() as broken:
            broken.setattr(BulkAction, "come_to", die)
            with pytest.raises(OperationalError):
                go_on(action_id, turn)
        BulkAction.objects.update(touched_at=timezone.now() - timedelta(minutes=1))
        assert go_on_with_all() == 1
        while messages := take_messages():
            go_on(*messages[0])
        action.refresh_from_db()
        assert counts(action) == (WorkState.DONE, 6, 0, 0)
        assert [run.input["topic"] for run in started_by(action)] == ["5", "4", "3", "2", "1", "0"]

    def test_the_queue_looks_every_minute(self) -> None:
        schedule = Schedule.objects.get(name="toolflow bulk actions")
        assert import_string(schedule.func) is go_on_with_all
        assert schedule.minutes == 1

    def test_one_that_is_stopped_stays_where_it_is(self, hurried: None) -> None:
        version = make_version()
        for _ in range(6):
            make_ended_run(version)
        action = run_again()
        assert action.stop()
        ((action_id, turn),) = take_messages()
        go_on(action_id, turn)
        action.refresh_from_db()
        assert counts(action) == (WorkState.STOPPED, 2, 0, 0)
        assert take_messages() == []
        assert not action.stop()

    def test_filters_that_mean_nothing_any_more_end_it_instead_of_widening_it(self, hurried: None) -> None:
        version = make_version()
        for _ in range(4):
            make_run(version)
        other = make_run(make_version(make_flow().model_copy(update={"name": "other"})))
        action = cancel(query=f"flow={version.flow.name}")
        version.flow.name = "renamed"
        version.flow.save()
        ((action_id, turn),) = take_messages()
        go_on(action_id, turn)
        action.refresh_from_db()
        assert action.state == WorkState.FAILED
        assert "There is no flow" in action.problem
        assert Run.objects.get(pk=other.pk).status == RunStatus.QUEUED

    def test_filters_that_make_no_sense_are_refused(self) -> None:
        make_run()
        with pytest.raises(ValueError, match="“lost” is not a status"):
            cancel(query="status=lost")
        assert not BulkAction.objects.exists()

    def test_a_fault_of_ours_ends_it_with_a_sentence(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = make_run()

        def fail(**_: Any) -> None:
            raise KeyError("out of order")

        monkeypatch.setattr(working, "cancel_runs", fail)
        action = cancel([run])
        assert (action.state, action.problem) == (
            WorkState.FAILED,
            "ToolFlow failed; the log says why. What was done stays done.",
        )
        assert "out of order" in caplog.text

    def test_a_form_that_is_sent_twice_does_it_once(self) -> None:
        run = make_ended_run()
        token = uuid4()
        first, second = (run_again([run], token=token) for _ in range(2))
        assert first == second
        assert len(started_by(first)) == 1

    def test_days_of_filters_are_those_of_whoever_asked(self, hurried: None) -> None:
        """In Auckland the 22nd begins at eleven of the 21st."""
        version = make_version()
        for _ in range(4):
            make_run(version)
        Run.objects.update(created_at=datetime(2026, 11, 21, 11, 30, tzinfo=UTC))
        with timezone.override("Pacific/Auckland"):
            action = cancel(query="from=2026-11-22")
        while messages := take_messages():
            go_on(*messages[0])
        action.refresh_from_db()
        assert action.done == 4
