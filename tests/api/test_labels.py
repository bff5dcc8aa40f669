"""Labels that scripts give to runs: mistakes are told where they stand, and those of bulk actions stay theirs."""

from __future__ import annotations

from typing import Any

import pytest

from flows.models import FlowVersion
from runs.facets import add_facets
from runs.models import BulkAction, FacetKind, Run, RunStatus
from tests.api.asking import Script, read_problem
from tests.api.documents import read
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db

ORDER = {"flow": "example", "input": {"topic": "tea"}}
TAKEN = "The label “bulk-2” is one that bulk actions give, to find what they started; write another."


@pytest.fixture(autouse=True)
def version(db: None) -> FlowVersion:
    return make_version(make_flow())


def read_errors(answer: Any) -> dict[str, str]:
    """What a 422 says, by JSON pointer."""
    problem = read_problem(answer)
    assert problem["status"] == 422, problem
    return {error["pointer"]: error["detail"] for error in problem["errors"]}


def start_many(script: Script, shared: list[str], *own: list[str]) -> Any:
    runs = [{"input": ORDER["input"], "labels": labels} for labels in own]
    return script.post("runs/bulk", {"flow": "example", "labels": shared, "runs": runs})


class TestMistakes:
    def test_one_is_told_where_it_stands_whatever_stands_there_twice(self, operator: Script) -> None:
        answer = operator.post("runs", {**ORDER, "labels": ["a", "a", "x,y"]})
        assert read_errors(answer).keys() == {"/labels/2"}

    def test_one_of_many_runs_is_told_at_that_run_as_it_was_sent(self, operator: Script) -> None:
        answer = start_many(operator, ["a", "b"], ["fine", "x,y"], ["b", "b", " "], ["fine"])
        assert read_errors(answer).keys() == {"/runs/0/labels/1", "/runs/1/labels/2"}
        answer = start_many(operator, ["a", "x,y"], ["x,z"], ["fine"])
        assert read_errors(answer).keys() == {"/labels/1", "/runs/0/labels/0"}
        assert not Run.objects.exists()

    def test_a_label_counts_once_however_often_it_is_given(self, operator: Script) -> None:
        ten = list("0123456789")
        answer = start_many(operator, ten, ["0", "9", "9"], ["5"])
        assert answer.status_code == 202, answer.content
        assert [run.labels for run in Run.objects.all()] == [ten, ten]
        assert read_errors(start_many(operator, ten, ["0", "0"], ["10"])) == {
            "/runs/1/labels": "A run has at most 10 labels; these are 11."
        }


class TestThoseOfBulkActions:
    def test_nobody_else_may_give_them(self, operator: Script) -> None:
        assert read_errors(operator.post("runs", {**ORDER, "labels": ["fine", " bulk-2"]})) == {"/labels/1": TAKEN}
        answer = start_many(operator, ["bulk-2"], ["fine"], ["bulk-30"])
        assert read_errors(answer).keys() == {"/labels/0", "/runs/1/labels/0"}
        ended = make_run(status=RunStatus.FAILED, ended_at=NOON)
        answer = operator.post(f"runs/{ended.pk}/run-again", {"labels": ["bulk-2"]})
        assert read_errors(answer) == {"/labels/0": TAKEN}
        alike = ["Bulk-2", "a bulk-2", "bulk", "bulk-", "bulk-2b", "bulk-two"]
        assert operator.post("runs", {**ORDER, "labels": alike}).json()["labels"] == alike  # type: ignore[attr-defined]  # answers to test clients have it

    def test_so_an_action_finds_what_it_started_and_nothing_else(self, operator: Script) -> None:
        make_run(status=RunStatus.FAILED, ended_at=NOON)
        action: Any = operator.post("bulk-actions", {"kind": "run_again", "filters": {"status": "failed"}})
        label = action.json()["label"]
        assert read_errors(operator.post("runs", {**ORDER, "labels": [label]})).keys() == {"/labels/0"}
        (started,) = read(operator, action.json()["started_runs_url"])["items"]
        # Whoever repeats a run of it starts none of the action’s.
        again: Any = operator.post(f"runs/{started['id']}/run-again")
        assert (again.status_code, again.json()["labels"]) == (202, [])
        assert [run["id"] for run in read(operator, action.json()["started_runs_url"])["items"]] == [started["id"]]
        assert BulkAction.objects.count() == 1

    def test_runs_that_have_one_from_before_keep_it_and_are_run_again(self, operator: Script) -> None:
        run = make_run(status=RunStatus.FAILED, ended_at=NOON, labels=["bulk-2", "nightly"])
        add_facets((run.pk, (FacetKind.LABEL, label)) for label in run.labels)
        assert [one["id"] for one in read(operator, "runs?label=bulk-2")["items"]] == [run.pk]
        again: Any = operator.post(f"runs/{run.pk}/run-again")
        assert (again.status_code, again.json()["labels"]) == (202, ["nightly"])
        assert read(operator, f"runs/{run.pk}")["labels"] == ["bulk-2", "nightly"]

    def test_a_request_from_before_that_is_sent_again_is_answered_as_it_was(
        self, operator: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order = {**ORDER, "labels": ["bulk-2"]}
        with monkeypatch.context() as before:
            before.setattr("runs.submission.find_label_problems", lambda labels: [])
            first: Any = operator.post("runs", order, Idempotency_Key="order-7")
        again: Any = operator.post("runs", order, Idempotency_Key="order-7")
        assert (again.status_code, again.content) == (202, first.content)
        assert again["Idempotency-Replayed"] == "true"
        assert Run.objects.get().labels == ["bulk-2"]
