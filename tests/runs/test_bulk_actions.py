"""Many runs cancelled or run again: what happens to them, and that nothing happens to others."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from runs.bulk_actions import effects, working
from runs.bulk_actions.requesting import MOST_STARTED
from runs.bulk_actions.tasks import go_on
from runs.models import Priority, Run, RunStatus, WorkState
from runs.models.long_work import MOST_NOTES
from runs.run_options import MAX_LABELS
from tests.api.asking import Script, make_token
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import claim_run, make_run, make_version
from tests.runs.bulk_requests import (
    cancel,
    counts,
    make_ended_run,
    make_schema_flow,
    run_again,
    started_by,
    take_messages,
)

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


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
        assert action.position == run.pk

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
        assert (run.again_of, original.again_of) == (original.pk, None)
        assert (run.priority, run.token_budget, run.cost_budget) == (Priority.HIGH, 5_000, Decimal("0.5"))
        assert (run.time_limit, run.started_by) == (timedelta(seconds=90), user)
        # Found by this action alone, not by the one before it.
        assert run.labels == [action.label, "nightly"]

    def test_a_run_with_as_many_labels_as_it_may_have_is_run_again_and_again(self) -> None:
        labels = [f"label {number}" for number in range(MAX_LABELS)]
        original = make_ended_run(labels=labels)
        once = run_again([original])
        (run,) = started_by(once)
        assert run.labels == [once.label, *labels]
        Run.objects.filter(pk=run.pk).update(status=RunStatus.FAILED, ended_at=NOON)
        (run,) = started_by(twice := run_again([run]))
        assert run.labels == [twice.label, *labels]
        # Alone it hands on what it was given, too.
        operator = Script(make_token(User.objects.create_superuser("ada")))
        answer: Any = operator.post(f"runs/{run.pk}/run-again")
        assert (answer.status_code, answer.json()["labels"]) == (202, labels)

    def test_who_was_told_of_the_original_is_told_of_the_new_run(self) -> None:
        original = make_ended_run(webhook_url="https://hooks.example.com/T0", metadata={"row": 7})
        (run,) = started_by(run_again([original]))
        assert (run.webhook_url, run.metadata) == ("https://hooks.example.com/T0", {"row": 7})

    def test_an_address_that_nothing_is_sent_to_any_more_is_named(self) -> None:
        original = make_ended_run(webhook_url="https://hooks.example.com:25/T0")
        action = run_again([original])
        assert counts(action) == (WorkState.DONE, 0, 0, 1)
        assert action.notes[0]["sentence"].startswith("Its webhook can’t be told any more: The port 25 is not one for")

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
        assert sentences[wanting.pk] == "Its input doesn’t fit version 1, at /input/topic."
        assert "is archived" in sentences[archived.pk]
        assert "has no published version" in sentences[draft.pk]
        assert [run.input for run in started_by(action)] == [{"topic": "tea"}]

    def test_nothing_of_an_input_is_remembered_that_does_not_fit(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "topic": {"enum": ["tea"]},
                "people": {"type": "array", "items": {"additionalProperties": {"type": "string"}}},
            },
            "additionalProperties": False,
        }
        inputs = [{"topic": "Olga"}, {"people": [{"Olga": 5}]}, {"people": [{"Olga": 5}], "topic": "Olga"}, {"Olga": 5}]
        version = make_version(make_schema_flow(schema))
        runs = [make_ended_run(version, input=input) for input in inputs]
        action = run_again(runs)
        assert [note["sentence"] for note in reversed(action.notes)] == [
            "Its input doesn’t fit version 1, at /input/topic.",
            "Its input doesn’t fit version 1, at /input/people/…/….",
            "Its input doesn’t fit version 1, at /input/people/…/… and in 1 more place.",
            "Its input doesn’t fit version 1, at /input/….",
        ]

    def test_what_fails_in_a_way_that_nobody_foresaw_is_named_too(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        version = make_version()
        runs = [make_ended_run(version, input={"topic": str(number)}) for number in range(3)]
        real = effects.store_runs

        def store_runs(again: Any) -> list[Run]:
            stored = real(again)
            if stored[0].input == {"topic": "1"}:
                raise KeyError("out of order")
            return stored

        monkeypatch.setattr(effects, "store_runs", store_runs)
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
