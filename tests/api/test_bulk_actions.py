"""Cancelling many runs and running many again, as a script does it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from pytest_django import DjangoAssertNumQueries

from runs.bulk_actions import work
from runs.models import AuditEntry, Run, RunStatus, WorkState
from tests.api.asking import SIGN_IN_QUERIES, Script, create_token, make_user, read, read_problem, settle
from tests.api.long_work import make_bulk_action
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db


def make_runs(count: int, status: str = RunStatus.QUEUED, **fields: Any) -> list[int]:
    """Numbers of runs of one flow, the oldest first."""
    version = make_version(make_page_flow())
    ended = {} if status == RunStatus.QUEUED else {"ended_at": NOON, "started_at": NOON - timedelta(seconds=9)}
    return [make_run(version, status=status, **ended, **fields).pk for _ in range(count)]


def ask(script: Script, status: int = 202, /, path: str = "bulk-actions", **body: Any) -> dict[str, Any]:
    answer: Any = script.post(path, body)
    assert answer.status_code == status, answer.content
    document: dict[str, Any] = answer.json()
    return document


def list_statuses() -> list[str]:
    return list(Run.objects.order_by("pk").values_list("status", flat=True))


class TestCancelling:
    def test_chosen_runs_are_cancelled_and_those_that_ended_are_named(self, operator: Script) -> None:
        queued, _ = make_runs(2)
        (ended,) = make_runs(1, RunStatus.SUCCEEDED)
        answer: Any = operator.post("bulk-actions", {"kind": "cancel", "runs": [queued, ended]})
        document = answer.json()
        assert (answer.status_code, answer["Location"]) == (202, document["url"])
        assert "Retry-After" not in answer
        expected = {
            "kind": "cancel",
            "status": "done",
            "problem": None,
            "run_count": 2,
            "filters": None,
            "version": None,
            "most": None,
            "label": None,
            "percent": 100,
            "done": 1,
            "skipped": 1,
            "failed": 0,
            "started_by": "operator",
            "page_url": f"http://testserver/runs/bulk/{document['id']}/",
            "started_runs_url": None,
            "notes": [{"run": ended, "is_failure": False, "sentence": "It had already ended."}],
        }
        assert {name: document[name] for name in expected} == expected
        assert read(operator, answer["Location"]) == document
        assert list_statuses() == ["cancelled", "queued", "succeeded"]


class TestRunningAgain:
    def test_each_becomes_a_new_run_that_the_label_finds(self, operator: Script) -> None:
        make_runs(3, RunStatus.FAILED)
        document = ask(operator, kind="run_again", filters={"status": "failed"}, most=2, version="live")
        assert (document["done"], document["most"], document["version"]) == (2, 2, "live")
        runs = read(operator, document["started_runs_url"])["items"]
        assert [run["labels"] for run in runs] == [[document["label"]]] * 2
        assert {run["status"] for run in runs} == {"queued"}

    def test_what_takes_longer_is_left_to_a_worker(self, operator: Script, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(work.work_on, "__defaults__", (0.0,))
        make_runs(30, RunStatus.FAILED)
        answer: Any = operator.post("bulk-actions", {"kind": "run_again", "filters": {}})
        document = answer.json()
        assert (document["status"], document["done"], answer["Retry-After"]) == ("working", 25, "1")
        now: Any = operator.get(answer["Location"])
        assert (now.json()["percent"], now["Retry-After"]) == (83, "1")


class TestMistakes:
    @pytest.mark.parametrize(
        ("kind", "held", "lacking"), [("cancel", "add_run", "change_run"), ("run_again", "change_run", "add_run")]
    )
    def test_each_kind_takes_its_own_permission(self, groups: None, kind: str, held: str, lacking: str) -> None:
        user = make_user("ada")
        user.user_permissions.set(Permission.objects.filter(codename__in=["view_run", held]))
        problem = read_problem(Script(create_token(user)).post("bulk-actions", {"kind": kind, "filters": {}}))
        assert (problem["status"], lacking in problem["detail"]) == (403, True)


class TestFollowing:
    def test_the_list_has_the_newest_first_page_by_page(
        self, viewer: Script, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        one, two, three = (make_bulk_action(query="flow=a&status=failed,errored").pk for _ in range(3))
        settle(viewer)
        with django_assert_num_queries(SIGN_IN_QUERIES + 1):
            first = read(viewer, "bulk-actions?limit=2")
        assert [item["id"] for item in first["items"]] == [three, two]
        assert first["items"][0]["filters"] == {"flow": "a", "status": ["failed", "errored"]}
        assert "notes" not in first["items"][0]
        assert [item["id"] for item in read(viewer, first["next"])["items"]] == [one]

    def test_one_that_is_at_work_can_be_stopped_once(self, operator: Script) -> None:
        action = make_bulk_action(state=WorkState.WORKING, done=3)
        answer: Any = operator.post(f"bulk-actions/{action.pk}/stop")
        assert (answer.status_code, answer.json()["status"], answer.json()["done"]) == (200, "stopped", 3)
        assert AuditEntry.objects.get(action="bulk_stopped").actor_name == "operator"
        problem = read_problem(operator.post(f"bulk-actions/{action.pk}/stop"))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:bulk-action-ended")
