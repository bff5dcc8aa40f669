"""Cancelling many runs and running many again, as a script does it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from pytest_django import DjangoAssertNumQueries

from runs.bulk_actions import work
from runs.models import AuditEntry, Run, RunStatus, WorkState
from tests.api.asking import (
    SIGN_IN_QUERIES,
    Script,
    create_token,
    make_user,
    read,
    read_json,
    read_problem,
    read_type,
    settle,
)
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


def test_chosen_runs_are_cancelled_and_those_that_ended_are_named(operator: Script) -> None:
    queued, _ = make_runs(2)
    (ended,) = make_runs(1, RunStatus.SUCCEEDED)
    answer = operator.post("bulk-actions", {"kind": "cancel", "runs": [queued, ended]})
    document = read_json(answer, 202)
    assert answer["Location"] == document["url"] and "Retry-After" not in answer
    expected = {
        "kind": "cancel", "status": "done", "problem": None, "run_count": 2, "percent": 100, "started_by": "operator",
        "done": 1, "skipped": 1, "failed": 0,
        "page_url": f"http://testserver/runs/bulk/{document['id']}/", "started_runs_url": None,
        **dict.fromkeys(("filters", "version", "most", "label")),
    }  # fmt: skip
    assert document | expected == document
    assert [(note["run"], note["is_failure"]) for note in document["notes"]] == [(ended, False)]
    assert read(operator, answer["Location"]) == document
    assert list(Run.objects.order_by("pk").values_list("status", flat=True)) == ["cancelled", "queued", "succeeded"]


def test_each_that_is_run_again_becomes_a_new_run_that_the_label_finds(operator: Script) -> None:
    make_runs(3, RunStatus.FAILED)
    body = {"kind": "run_again", "filters": {"status": "failed"}, "most": 2, "version": "live"}
    document = read_json(operator.post("bulk-actions", body), 202)
    assert (document["done"], document["most"], document["version"]) == (2, 2, "live")
    runs = read(operator, document["started_runs_url"])["items"]
    assert [(run["labels"], run["status"]) for run in runs] == [([document["label"]], "queued")] * 2


def test_what_takes_longer_is_left_to_a_worker(operator: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work.work_on, "__defaults__", (0.0,))
    make_runs(30, RunStatus.FAILED)
    answer = operator.post("bulk-actions", {"kind": "run_again", "filters": {}})
    document = read_json(answer, 202)
    assert (document["status"], document["done"], answer["Retry-After"]) == ("working", 25, "1")
    now = operator.get(answer["Location"])
    assert (read_json(now)["percent"], now["Retry-After"]) == (83, "1")


@pytest.mark.parametrize(
    ("kind", "held", "lacking"), [("cancel", "add_run", "change_run"), ("run_again", "change_run", "add_run")]
)
def test_each_kind_takes_its_own_permission(groups: None, kind: str, held: str, lacking: str) -> None:
    user = make_user("ada")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_run", held]))
    problem = read_problem(Script(create_token(user)).post("bulk-actions", {"kind": kind, "filters": {}}))
    assert (problem["status"], lacking in problem["detail"]) == (403, True)


def test_the_list_has_the_newest_first_page_by_page(
    viewer: Script, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    one, two, three = (make_bulk_action(query="flow=a&status=failed,errored").pk for _ in range(3))
    settle(viewer)
    with django_assert_num_queries(SIGN_IN_QUERIES + 1):
        first = read(viewer, "bulk-actions?limit=2")
    assert [item["id"] for item in first["items"]] == [three, two]
    assert first["items"][0]["filters"] == {"flow": "a", "status": ["failed", "errored"]}
    assert "notes" not in first["items"][0]
    assert [item["id"] for item in read(viewer, first["next"])["items"]] == [one]


def test_one_that_is_at_work_can_be_stopped_once(operator: Script) -> None:
    action = make_bulk_action(state=WorkState.WORKING, done=3)
    document = read_json(operator.post(f"bulk-actions/{action.pk}/stop"))
    assert (document["status"], document["done"]) == ("stopped", 3)
    assert AuditEntry.objects.get(action="bulk_stopped").actor_name == "operator"
    assert read_type(operator.post(f"bulk-actions/{action.pk}/stop")) == (409, "bulk-action-ended")
