"""Cancelling runs from a script."""

from __future__ import annotations

import json

import pytest

from runs.models import Run, RunStatus, TokenScope, TrailEntry
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import NOON
from tests.runs.builders import claim_run, make_run

pytestmark = pytest.mark.django_db


def test_a_queued_run_is_cancelled_at_once(operator: Script) -> None:
    run = make_run()
    answer = operator.post(f"runs/{run.pk}/cancel")
    assert answer.status_code == 202, answer.content
    assert "Retry-After" not in answer
    document = json.loads(answer.content)
    assert (document["status"], document["end_reason"]) == ("cancelled", "cancelled")
    assert document == json.loads(operator.get(f"runs/{run.pk}?attempts=none").content)


def test_a_running_run_is_told_to_stop_however_often_that_is_asked(operator: Script) -> None:
    run = claim_run(make_run(is_simulated=True))
    for _ in range(2):
        answer = operator.post(f"runs/{run.pk}/cancel", {})
        assert answer.status_code == 202, answer.content
        assert answer["Retry-After"] == "1"
        document = json.loads(answer.content)
        assert (document["status"], document["cancel_requested"]) == ("running", True)


def test_a_run_that_is_cancelled_already_is_answered_as_it_is_however_often_that_is_asked(operator: Script) -> None:
    run = make_run()
    first, second = (operator.post(f"runs/{run.pk}/cancel") for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.content == first.content
    assert "Retry-After" not in second
    # Nothing was done the second time.
    assert TrailEntry.objects.filter(action="run_cancelled").count() == 1


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (RunStatus.SUCCEEDED, "succeeded"),
        (RunStatus.FAILED, "failed"),
        (RunStatus.ERRORED, "ended with an error"),
    ],
)
def test_a_run_that_ended_otherwise_stays_as_it_is(operator: Script, status: RunStatus, end: str) -> None:
    run = make_run(status=status, ended_at=NOON)
    problem = read_problem(operator.post(f"runs/{run.pk}/cancel"))
    assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:run-ended")
    assert problem["detail"] == f"Run {run.pk} has ended already: it {end}."
    assert Run.objects.get(pk=run.pk).status == status


def test_a_cancellation_that_is_sent_again_with_its_key_is_answered_as_before(operator: Script) -> None:
    run = make_run()
    first, second = (operator.post(f"runs/{run.pk}/cancel", Idempotency_Key="stop") for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.content == second.content


def test_there_is_no_such_run(operator: Script) -> None:
    for number in (4711, 10**30):
        assert read_problem(operator.post(f"runs/{number}/cancel"))["status"] == 404


def test_a_body_that_says_something_is_a_mistake(operator: Script) -> None:
    run = make_run()
    problem = read_problem(operator.post(f"runs/{run.pk}/cancel", {"reason": "wrong input"}))
    assert [error["pointer"] for error in problem["errors"]] == ["/reason"]
    assert Run.objects.get(pk=run.pk).status == RunStatus.QUEUED


def test_who_may_not_cancel_runs_is_told_so(viewer: Script) -> None:
    run = make_run()
    reading = Script(make_token(make_user("reader", "Operator"), TokenScope.READ))
    for script in (viewer, reading):
        assert read_problem(script.post(f"runs/{run.pk}/cancel"))["status"] == 403
    assert Run.objects.get(pk=run.pk).status == RunStatus.QUEUED
