"""Many runs cancelled or run again: what happens to them, that nothing happens to others, and nothing twice."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.db.models import QuerySet
from django.utils import timezone

from flows.models import FlowVersion
from runs import submission
from runs.bulk_actions import requests, work
from runs.bulk_actions.work import resume_all, work_on
from runs.models import BulkAction, Priority, Run, RunStatus, WorkState
from runs.models.long_work import MAX_NOTES
from runs.models.run import REDACTED_INPUT
from runs.run_options import MAX_LABELS
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import claim_run, make_run, make_version
from tests.runs.bulk_requests import (
    cancel,
    counts,
    make_ended_run,
    make_schema_flow,
    run_again,
    started_by,
    take_tasks,
)

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def list_reasons(action: BulkAction) -> dict[int, tuple[bool, str]]:
    return {note["run"]: (note["failed"], note["sentence"]) for note in action.notes}


class TestCancelling:
    def test_chosen_runs_are_cancelled_and_others_left_out_with_a_reason(self) -> None:
        version = make_version()
        running, flagged = (claim_run(make_run(version), name) for name in ("one", "two"))
        flagged.request_cancel()
        ended, queued, gone = make_ended_run(version), make_run(version), make_run(version)
        Run.objects.filter(pk=gone.pk).delete()
        action = cancel([queued, running, ended, flagged, gone])
        assert counts(action) == (WorkState.DONE, 2, 2, 1)
        assert {key: is_failure for key, (is_failure, _) in list_reasons(action).items()} == {
            ended.pk: False,
            flagged.pk: False,
            gone.pk: True,
        }
        for run in (queued, running, ended):
            run.refresh_from_db()
        assert (queued.status, ended.status) == (RunStatus.CANCELLED, RunStatus.FAILED)
        assert (running.status, running.cancel_requested) == (RunStatus.RUNNING, True)

    def test_all_that_match_are_cancelled_and_no_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(requests, "_BATCH_SIZE", 7)
        other = make_run(make_version(make_flow().model_copy(update={"name": "other"})))
        version = make_version()
        runs = {make_run(version).pk for _ in range(30)}
        make_ended_run(version)
        action = cancel(query=f"flow={version.flow.name}")
        work_on(action.pk, timeout=60)  # on a slow machine the request leaves some to a worker
        action.refresh_from_db()
        assert counts(action) == (WorkState.DONE, 30, 0, 0)
        assert set(Run.objects.filter(status=RunStatus.CANCELLED).values_list("pk", flat=True)) == runs
        assert Run.objects.get(pk=other.pk).status == RunStatus.QUEUED

    def test_runs_that_begin_after_it_was_requested_go_on(self) -> None:
        version = make_version()
        newest = make_run(version).pk
        later = make_run(version)
        assert counts(cancel(newest=newest)) == (WorkState.DONE, 1, 0, 0)
        assert Run.objects.get(pk=later.pk).status == RunStatus.QUEUED


class TestRunningAgain:
    def test_each_keeps_what_it_was_given(self) -> None:
        user = User.objects.create_user("ada")
        version = make_version()
        original = make_ended_run(
            version,
            input={"topic": "süß 🍵"},
            priority=Priority.HIGH,
            labels=["bulk-3", *(f"label {number}" for number in range(MAX_LABELS - 1))],
            metadata={"row": 7},
            webhook_url="https://hooks.example.com/T0",
            token_budget=5_000,
            cost_budget=Decimal("0.5"),
            time_limit=timedelta(seconds=90),
        )
        make_version()
        action = run_again([original], asked_by=user)
        assert counts(action) == (WorkState.DONE, 1, 0, 0)
        (run,) = started_by(action)
        kept = ("version", "input", "priority", "metadata", "webhook_url", "token_budget", "cost_budget", "time_limit")
        assert [getattr(run, name) for name in kept] == [getattr(original, name) for name in kept]
        assert (run.status, run.again_of, run.started_by) == (RunStatus.QUEUED, original.pk, user)
        # Found by this action alone, not by the one before it; its label counts beside those of a run.
        assert run.labels == sorted([action.label, *original.labels[1:]])

    def test_under_the_live_version_without_the_limits_of_the_old_one(self) -> None:
        old = make_version(make_flow().model_copy(update={"token_budget": 1_000}))
        original = make_ended_run(old, token_budget=1_000)
        live = make_version(make_flow().model_copy(update={"token_budget": 2_000}))
        (run,) = started_by(run_again([original], uses_live_version=True))
        assert (run.version, run.token_budget) == (live, 2_000)
        # Also where only the old one can't be read any more.
        QuerySet.update(FlowVersion.objects.filter(pk=old.pk), spec={"shape": "round"})
        assert counts(run_again([original], uses_live_version=True)) == (WorkState.DONE, 1, 0, 0)

    def test_a_redacted_input_is_no_input_also_where_the_flow_no_longer_redacts(self) -> None:
        original = make_ended_run(make_version(), input={"topic": "[redacted]"}, is_input_redacted=True)
        action = run_again([original], uses_live_version=True)
        assert (counts(action)[1:], action.notes[0]["sentence"]) == ((0, 0, 1), REDACTED_INPUT)

    def test_what_can_not_run_is_counted_with_a_reason(self) -> None:
        unfit = make_ended_run(make_version(make_schema_flow()), input={"topic": 5})
        fitting = make_ended_run(unfit.version, input={"topic": "tea"})
        archived = make_ended_run(make_version(make_flow().model_copy(update={"name": "archived"})))
        archived.flow.is_archived = True
        archived.flow.save()
        draft = make_ended_run(make_version(make_flow().model_copy(update={"name": "draft"})))
        draft.flow.live_version = None
        draft.flow.save()
        refused = make_ended_run(fitting.version, webhook_url="https://hooks.example.com:25/T0")
        removed = make_ended_run(fitting.version, outputs_removed_at=NOON)
        queued = make_run(fitting.version)
        action = run_again([unfit, fitting, archived, draft, refused, removed, queued], uses_live_version=True)
        assert counts(action) == (WorkState.DONE, 1, 1, 5)
        reasons = list_reasons(action)
        assert reasons.keys() == {run.pk for run in (unfit, archived, draft, refused, removed, queued)}
        assert "version 1" in reasons[unfit.pk][1] and "archived" in reasons[archived.pk][1]
        assert [run.input for run in started_by(action)] == [{"topic": "tea"}]

    def test_reasons_hold_nothing_of_an_input(self) -> None:
        schema = {"type": "object", "properties": {"topic": {"enum": ["tea"]}}, "additionalProperties": False}
        version = make_version(make_schema_flow(schema))
        action = run_again([make_ended_run(version, input=input) for input in ({"topic": "Olga"}, {"Olga": 5})])
        assert action.failed == 2
        assert "Olga" not in str(action.notes)

    def test_an_unexpected_error_leaves_out_one_run_and_nothing_of_it(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        version = make_version()
        runs = [make_ended_run(version, input={"topic": str(number)}) for number in range(3)]

        def store_runs(again: Any) -> list[Run]:
            stored = submission.store_runs(again)
            if stored[0].input == {"topic": "1"}:
                raise KeyError("out of order")
            return stored

        monkeypatch.setattr(work, "store_runs", store_runs)
        action = run_again(runs)
        assert counts(action) == (WorkState.DONE, 2, 0, 1)
        assert "out of order" in caplog.text
        assert [run.input["topic"] for run in started_by(action)] == ["0", "2"]

    def test_reasons_are_kept_up_to_a_limit(self) -> None:
        version = make_version()
        action = run_again([make_run(version) for _ in range(MAX_NOTES + 5)])
        assert (counts(action), len(action.notes)) == ((WorkState.DONE, 0, MAX_NOTES + 5, 0), MAX_NOTES)


@pytest.mark.django_db(transaction=True)
class TestGoingOn:
    @pytest.fixture(autouse=True)
    def _one_batch_a_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(work, "BATCH_SIZE", 2)
        monkeypatch.setattr(work.work_on, "__defaults__", (0.0,))

    def make_action(self, count: int = 7) -> BulkAction:
        version = make_version()
        action = run_again([make_ended_run(version, input={"topic": str(number)}) for number in range(count)])
        assert counts(action) == (WorkState.WORKING, 2, 0, 0)
        return action

    def list_topics(self, action: BulkAction) -> list[str]:
        return [run.input["topic"] for run in started_by(action)]

    def test_after_a_crash_it_goes_on_behind_the_last_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        action = self.make_action()
        take_tasks()
        assert resume_all() == 0
        BulkAction.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=1))
        assert (resume_all(), resume_all(), take_tasks()) == (1, 0, [action.pk])

        def fail(*_: Any) -> None:
            raise OperationalError("the server closed the connection unexpectedly")

        # The runs of the batch are stored with its position or not at all.
        with monkeypatch.context() as broken:
            broken.setattr(BulkAction, "advance", fail)
            with pytest.raises(OperationalError):
                work_on(action.pk)
        assert self.list_topics(action) == ["0", "1"]
        work_on(action.pk)
        # A task that comes twice does nothing twice.
        for _ in range(2):
            work_on(action.pk, timeout=60)
        action.refresh_from_db()
        assert counts(action) == (WorkState.DONE, 7, 0, 0)
        assert self.list_topics(action) == list("0123456")

    def test_a_stopped_one_stays_as_it_is(self) -> None:
        action = self.make_action()
        assert action.stop() and not action.stop()
        for task in take_tasks():
            work_on(task)
        action.refresh_from_db()
        assert (counts(action), take_tasks()) == ((WorkState.STOPPED, 2, 0, 0), [])
        assert action.percent == 28

    def test_an_unexpected_error_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        action = self.make_action()
        monkeypatch.setattr(work, "_start_runs", lambda *_: 1 / 0)
        work_on(action.pk)
        action.refresh_from_db()
        assert (counts(action), bool(action.problem)) == ((WorkState.FAILED, 2, 0, 0), True)
