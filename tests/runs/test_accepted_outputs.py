"""Runs in which a step accepted its best output: what is stored, shown, filtered by and counted of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from flows.engine.spec import OnExhausted
from runs.filters import RunFilters, fetch_matching_runs
from runs.models import Attempt, DailyRuns, EndReason, Run, RunStatus
from runs.rollup import count_ended_runs
from runs.stored_history import load_history
from runs.try_out.rejudging import load_past_attempts
from tests.engine.builders import make_flow, make_step
from tests.engine.executions import LENGTH, LONG, SHORT
from tests.engine.model_server import ModelServer
from tests.runs.executing import run_flow, script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

ACCEPTING: dict[str, Any] = {"audits": (LENGTH,), "max_retries": 1, "on_exhausted": OnExhausted.ACCEPT_BEST}
FLOW = make_flow(make_step(1, **ACCEPTING), make_step(2, **ACCEPTING))


@pytest.fixture
def accepted(provider: ModelServer) -> Run:
    """A run whose step 1 passed, and whose step 2 accepted its first attempt, the second being invalid."""
    script(provider, tool_1=[LONG], tool_2=[SHORT, {"no": 1}])
    return run_flow(FLOW)


def test_the_run_succeeds_and_says_what_it_accepted(accepted: Run) -> None:
    assert (accepted.status, accepted.end_reason) == (RunStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED)
    assert (accepted.steps_passed, accepted.accepted_count) == (1, 1)
    rows = Attempt.objects.filter(step__run=accepted, is_accepted=True)
    assert list(rows.values_list("step__index", "number")) == [(2, 1)]


def test_pages_and_api_show_the_accepted_output_as_the_result(accepted: Run, client: Client, admin_user: Any) -> None:
    client.force_login(admin_user)
    page = client.get(reverse("runs:page", args=[accepted.pk]), {"show": "result"}).content.decode()
    assert 'id="accepted"' in page and SHORT["text"] in page
    assert "best output accepted" in client.get(reverse("runs:list")).content.decode()
    run = client.get(f"/api/v1/runs/{accepted.pk}", {"attempts": "final"}).json()
    (final,) = run["steps"][2]["attempts"]
    assert (run["accepted_count"], final["is_accepted"], final["output"]) == (1, True, SHORT)


def test_they_are_filtered_by_and_counted_apart(accepted: Run, provider: ModelServer) -> None:
    script(provider, tool_1=[LONG], tool_2=[LONG])
    passed = run_flow(FLOW)
    assert fetch_matching_runs(RunFilters("accepted=1")).ids == (accepted.pk,)
    assert RunFilters("accepted=0").problems and passed.accepted_count == 0
    count_ended_runs()
    counts = DailyRuns.objects.values_list("succeeded", "accepted", "first_time")
    assert [sum(column) for column in zip(*counts, strict=True)] == [2, 1, 1]


def test_later_steps_are_judged_again_on_the_accepted_output(provider: ModelServer) -> None:
    script(provider, tool_1=[SHORT, {"no": 1}], tool_2=[LONG])
    rule = LENGTH.model_copy(update={"rule": "steps[1].output != null"})
    flow = make_flow(make_step(1, **ACCEPTING), make_step(2, audits=(rule,)))
    run = run_flow(flow)
    assert load_history(run).attempts(2)[0].input == SHORT
    ((past,), _) = load_past_attempts(run.flow_id, flow, 2)
    assert past.case.variables["steps"][1]["output"] == SHORT
