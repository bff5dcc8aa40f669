"""Many runs cancelled or run again: what happens to them, and that nothing happens twice or to others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage

from flows.engine.spec import FlowSpec
from runs.bulk_actions import effects, working
from runs.bulk_actions.requesting import MOST_STARTED, request_bulk_action
from runs.bulk_actions.tasks import go_on, go_on_with_all
from runs.models import BulkAction, BulkKind, FacetKind, Priority, Run, RunFacet, RunStatus, WorkState
from runs.models.long_work import MOST_NOTES
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import claim_run, make_run, make_version

pytestmark = pytest.mark.django_db

TOPIC_SCHEMA = {
    "type": "object",
    "properties": {"topic": {"type": "string"}},
    "required": ["topic"],
    "additionalProperties": False,
}


def make_ended_run(version: Any = None, **fields: Any) -> Run:
    return make_run(version, **{"status": RunStatus.FAILED, "ended_at": NOON, **fields})


def make_schema_flow(schema: dict[str, Any] | None = None) -> FlowSpec:
    return make_flow().model_copy(update={"input_schema": schema or TOPIC_SCHEMA})


def request(kind: BulkKind, runs: list[Run] | None = None, **options: Any) -> BulkAction:
    """Ask for it, for these runs or for all that match."""
    newest = max(Run.objects.values_list("pk", flat=True), default=0)
    run_ids = None if runs is None else [run.pk for run in runs]
    return request_bulk_action(**{"token": uuid4(), "kind": kind, "run_ids": run_ids, "newest": newest, **options})


def cancel(runs: list[Run] | None = None, **options: Any) -> BulkAction:
    return request(BulkKind.CANCEL, runs, **options)


def run_again(runs: list[Run] | None = None, **options: Any) -> BulkAction:
    return request(BulkKind.RUN_AGAIN, runs, **options)


def counts(action: BulkAction) -> tuple[str, int, int, int]:
    return action.state, action.done, action.skipped, action.failed


def started_by(action: BulkAction) -> list[Run]:
    """The runs that it started, the first first."""
    facets = RunFacet.objects.filter(kind=FacetKind.LABEL, value=action.label)
    return list(Run.objects.filter(pk__in=facets.values("run")).order_by("pk"))


def take_messages() -> list[tuple[int, int]]:
    """What messages about bulk actions wait, which are taken off the queue."""
    found = [(row, SignedPackage.loads(row.payload)) for row in OrmQ.objects.order_by("pk")]
    mine = [(row, task) for row, task in found if task["func"] == working.GO_ON_TASK]
    OrmQ.objects.filter(pk__in=[row.pk for row, _ in mine]).delete()
    return [tuple(task["args"]) for _, task in mine]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has patience for more than one batch, of two runs."""
    monkeypatch.setattr(working, "BATCH", 2)
    monkeypatch.setattr(working, "LOOK", 2)
    monkeypatch.setattr("runs.bulk_actions.requesting.REQUEST_PATIENCE", 0)
    monkeypatch.setattr("runs.bulk_actions.tasks.PATIENCE", 0)


class TestCancelling:
    def test_chosen_runs_are_cancelled_and_ended_ones_are_named(self) -> None:
        version = make_version()
        running, flagged = (claim_run(make_run(version), name) for name in ("one", "two"))
        flagged.request_cancel()
        ended = make_ended_run(version)
        queued = make_run(version)
        action = cancel([queued, running, ended, flagged])
        assert counts(action) == (WorkState.DONE, 2, 2, 0)
        for run in (queued, running, ended):
            run.refresh_from_db()
        assert queued.status == RunStatus.CANCELLED
        assert (running.status, running.cancel_requested) == (RunStatus.RUNNING, True)
        assert ended.status == RunStatus.FAILED
        assert {note["run"]: note["sentence"] for note in action.notes} == {
            ended.pk: "It had ended already.",
            flagged.pk: "It was being cancelled already.",
        }

    def test_all_that_match_are_cancelled_and_no_others(self) -> None:
        other = make_run(make_version(make_flow().model_copy(update={"name": "other"})))
        version = make_version()
        runs = [make_run(version) for _ in range(60)]
        ended = make_ended_run(version)
        action = cancel(query=f"flow={version.flow.name}")
        assert counts(action) == (WorkState.DONE, 60, 0, 0)
        assert {run.status for run in Run.objects.filter(pk__in=[run.pk for run in runs])} == {RunStatus.CANCELLED}
        assert Run.objects.get(pk=other.pk).status == RunStatus.QUEUED
        assert Run.objects.get(pk=ended.pk).status == RunStatus.FAILED

    def test_runs_that_begin_after_it_was_asked_for_go_on(self) -> None:
        version = make_version()
        meant = make_run(version)
        newest = meant.pk
        later = make_run(version)
        assert counts(cancel(newest=newest)) == (WorkState.DONE, 1, 0, 0)
        assert Run.objects.get(pk=later.pk).status == RunStatus.QUEUED

    def test_looking_ends_at_the_oldest_run_that_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(working, "LOOK", 2)
        version = make_version()
        for _ in range(9):
            make_ended_run(version)
        run = make_run(version)
        action = cancel()
        assert counts(action) == (WorkState.DONE, 1, 0, 0)
        assert action.oldest == run.pk
        assert action.position >= run.pk - 2

    def test_a_run_that_is_gone_is_named(self) -> None:
        run = make_run()
        gone = make_run()
        Run.objects.filter(pk=gone.pk).delete()
        action = cancel([run, gone])
        assert counts(action) == (WorkState.DONE, 1, 0, 1)
        assert action.notes == [
            {"run": gone.pk, "failed": True, "sentence": "There is no run of this number any more."}
        ]


class TestRunningAgain:
    def test_each_keeps_its_input_version_priority_limits_and_labels(self) -> None:
        user = User.objects.create_user("ada")
        version = make_version()
        original = make_ended_run(
            version,
            input={"topic": "süß 🍵"},
            priority=Priority.HIGH,
            labels=["nightly", "bulk-3"],
            token_budget=5_000,
            cost_budget=Decimal("0.5"),
            time_limit=timedelta(seconds=90),
        )
        make_version()
        action = run_again([original], asked_by=user)
        assert counts(action) == (WorkState.DONE, 1, 0, 0)
        (run,) = started_by(action)
        assert (run.status, run.version, run.input) == (RunStatus.QUEUED, version, {"topic": "süß 🍵"})
        assert (run.priority, run.token_budget, run.cost_budget) == (Priority.HIGH, 5_000, Decimal("0.5"))
        assert (run.time_limit, run.started_by) == (timedelta(seconds=90), user)
        # Found by this action alone, not by the one before it.
        assert run.labels == [action.label, "nightly"]

    def test_under_the_live_version_if_that_is_wanted(self) -> None:
        original = make_ended_run(make_version())
        live = make_version()
        (run,) = started_by(run_again([original], uses_live_version=True))
        assert run.version == live

    def test_limits_of_another_version_are_not_taken_along(self) -> None:
        old = make_version(make_flow().model_copy(update={"token_budget": 1_000}))
        original = make_ended_run(old, token_budget=1_000)
        make_version(make_flow().model_copy(update={"token_budget": 2_000}))
        (run,) = started_by(run_again([original], uses_live_version=True))
        assert run.token_budget == 2_000

    def test_what_can_not_run_is_counted_and_named_and_keeps_nobody_up(self) -> None:
        wanting = make_ended_run(make_version(make_schema_flow()), input={"topic": 5})
        fitting = make_ended_run(wanting.version, input={"topic": "tea"})
        archived = make_ended_run(make_version(make_flow().model_copy(update={"name": "archived"})))
        archived.flow.is_archived = True
        archived.flow.save()
        draft = make_ended_run(make_version(make_flow().model_copy(update={"name": "draft"})))
        draft.flow.live_version = None
        draft.flow.save()
        queued = make_run(wanting.version)
        action = run_again([wanting, fitting, archived, draft, queued], uses_live_version=True)
        assert counts(action) == (WorkState.DONE, 1, 1, 3)
        sentences = {note["run"]: note["sentence"] for note in action.notes}
        assert sentences[queued.pk] == "It has not ended yet."
        assert sentences[wanting.pk].startswith("Its input doesn’t fit version 1: /topic: ")
        assert "is archived" in sentences[archived.pk]
        assert "has no published version" in sentences[draft.pk]
        assert [run.input for run in started_by(action)] == [{"topic": "tea"}]

    def test_what_fails_in_a_way_that_nobody_foresaw_is_named_too(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        version = make_version()
        runs = [make_ended_run(version, input={"topic": str(number)}) for number in range(3)]
        real = effects.submit_run

        def submit_run(**values: Any) -> Run:
            run = real(**values)
            if values["input"] == {"topic": "1"}:
                raise KeyError("out of order")
            return run

        monkeypatch.setattr(effects, "submit_run", submit_run)
        action = run_again(runs)
        assert counts(action) == (WorkState.DONE, 2, 0, 1)
        assert action.notes[0]["sentence"] == "ToolFlow failed to start it; the log says why."
        assert "out of order" in caplog.text
        # Nothing stays of what it had begun.
        assert [run.input["topic"] for run in started_by(action)] == ["2", "0"]

    def test_no_more_than_so_many_the_newest_first(self) -> None:
        version = make_version()
        for number in range(9):
            make_ended_run(version, input={"topic": str(number)})
        action = run_again(most=4)
        assert counts(action) == (WorkState.DONE, 4, 0, 0)
        assert [run.input["topic"] for run in started_by(action)] == ["8", "7", "6", "5"]
        assert run_again(most=10**6).most == MOST_STARTED

    def test_the_runs_that_it_starts_are_not_run_again_themselves(self, hurried: None) -> None:
        version = make_version()
        for _ in range(5):
            make_ended_run(version)
        action = run_again()
        while messages := take_messages():
            Run.objects.filter(status=RunStatus.QUEUED).update(status=RunStatus.FAILED, ended_at=NOON)
            go_on(*messages[0])
        action.refresh_from_db()
        assert counts(action) == (WorkState.DONE, 5, 0, 0)

    def test_only_the_first_of_many_that_were_left_out_are_remembered_by_name(self) -> None:
        version = make_version()
        action = run_again([make_run(version) for _ in range(MOST_NOTES + 5)])
        assert counts(action) == (WorkState.DONE, 0, MOST_NOTES + 5, 0)
        assert len(action.notes) == MOST_NOTES


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
        migration = import_module("runs.migrations.0013_long_work")
        Schedule.objects.filter(name=migration.NAME).delete()
        migration.add_schedule(apps, None)
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
