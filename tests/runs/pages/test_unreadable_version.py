"""Runs whose version this release can't read: made by a later one, or changed by hand."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models import QuerySet
from django.test import Client

from flows.models import FlowVersion
from runs.models import DailyRuns, Run, RunStatus
from runs.rollup import count_ended_runs
from tests.engine.builders import make_attempt, make_issue, make_usage
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

SPECS = [{"steps": 7}, {}, 7, [], "text", {"steps": [{"name": 3}]}, {"name": "x", "steps": [], "new_field": True}]
ISSUE = make_issue("low", "“red” is no hex colour.", audit="Hex colours", path="/colours/1")


def make_unreadable(spec: Any = None, **fields: Any) -> Run:
    run = make_stored_run(
        make_attempt(1, 1, "failed", output={"colours": ["#fff", "red"]}, issues=(ISSUE,), usage=make_usage(100)),
        make_attempt(1, 2, request={"messages": [{"role": "user", "content": "Say tea."}]}, usage=make_usage(200)),
        make_attempt(2, 1, "failed"),
        **{
            "status": RunStatus.FAILED,
            "end_sentence": "Step 2 “Step 2” did not pass in 1 attempt.",
            "blocking_step": 2,
            "blocking_attempt": 1,
            **fields,
        },
    )
    # Versions never change: a later release made this one.
    versions = FlowVersion.objects.filter(pk=run.version_id)
    QuerySet.update(versions, spec={"steps": 7} if spec is None else spec)
    return run


@pytest.mark.parametrize("spec", SPECS)
def test_the_page_shows_what_is_stored_and_says_what_is_not_known(viewer: Client, spec: Any) -> None:
    words = read_words(get_page(viewer, run_address(make_unreadable(spec))))
    assert "This release of ToolFlow can’t read version 1 of the flow, which this run was made with." in words
    assert "1 Step 1 Passed 300 tokens" in words
    assert "2 attempts 1 issue: fixed by attempt 2" in words
    assert "“red” is no hex colour." in words
    assert "3 Step 3 Not begun" in words
    assert "Step 2 “Step 2” did not pass in 1 attempt." in words
    assert "Hidden from the model" not in words


@pytest.mark.parametrize("spec", SPECS)
def test_its_runs_are_counted_like_all_others(spec: Any) -> None:
    run = make_unreadable(spec)
    assert count_ended_runs() == 1
    call_command("rebuild_statistics", stdout=StringIO())
    (counted,) = DailyRuns.objects.values_list("flow", "failed")
    assert counted == (run.flow_id, 1)


def test_a_version_that_can_be_read_is_not_spoken_of(viewer: Client) -> None:
    run = make_stored_run(make_attempt(1, 1))
    assert "This release of ToolFlow" not in get_page(viewer, run_address(run))


def test_settings_that_can_not_be_read_are_no_hindrance(viewer: Client) -> None:
    run = make_unreadable(model_settings={"temperature": "warm", "mood": 3})
    assert "1 Step 1 Passed" in read_words(get_page(viewer, run_address(run)))


@pytest.mark.parametrize("spec", SPECS)
def test_so_do_live_updates(viewer: Client, spec: Any) -> None:
    run = make_unreadable(spec, status=RunStatus.RUNNING, end_sentence="", blocking_step=None, blocking_attempt=None)
    begin_attempt(run, 2, 2)
    answer = viewer.get(f"{run_address(run)}live?revision=1&seen=2.1", headers=HTMX)
    assert answer.status_code == 200
    assert 'id="s2a2"' in answer.content.decode()


def test_attempts_and_their_parts_can_be_opened(viewer: Client) -> None:
    attempts = f"{run_address(make_unreadable())}steps/1/attempts/"
    assert "“red” is no hex colour." in get_page(viewer, f"{attempts}1/")
    assert "Say tea." in get_page(viewer, f"{attempts}2/request/")
    assert "Input of the step" in get_page(viewer, f"{attempts}2/input/")


@pytest.mark.parametrize("spec", SPECS)
def test_documents_have_the_steps_that_have_begun(admin_client: Client, spec: Any) -> None:
    run = make_unreadable(spec)
    begun = [(0, "Input", 1), (1, "Step 1", 2), (2, "Step 2", 1)]
    for address, name in ((f"/runs/{run.pk}.json", "steps"), (f"/api/v1/runs/{run.pk}", "steps")):
        steps = admin_client.get(address).json()[name]
        assert [(step["index"], step["name"], len(step["attempts"])) for step in steps] == begun
    address = f"/api/v1/runs/{run.pk}/steps"
    assert [step["index"] for step in admin_client.get(address).json()["items"]] == [0, 1, 2]
    assert admin_client.get(f"{address}/2").json()["name"] == "Step 2"
    assert admin_client.get(f"{address}/3").status_code == 404


def test_its_runs_can_be_run_again_with_a_version_that_can_be_read(operator: Client) -> None:
    run = make_unreadable(token_budget=5_000)
    address = f"/runs/new/{run.flow.name}/?from={run.pk}"
    answer = operator.get(address)
    assert answer.status_code == 409
    assert "This release of ToolFlow can’t read its live version, 1." in read_words(answer.content.decode())
    make_version(make_page_flow())
    page = get_page(operator, address)
    assert "tea" in page and 'value="5000"' in page
    answer = operator.get(f"{address}&version=1")
    assert answer.status_code == 409
    assert "This release of ToolFlow can’t read version 1. Run the live version instead." in read_words(
        answer.content.decode()
    )
