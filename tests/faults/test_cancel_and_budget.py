"""What ends a run from outside: no call is made after a cancel took effect, none after a budget is used up."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from tests.faults.conftest import CANCEL_LIMIT, Build
from tests.faults.flows import THREE_STEPS
from tests.faults.installation import Installation
from tests.faults.services import Backend
from tests.waiting import wait_until

pytestmark = pytest.mark.faults


def test_a_cancel_cuts_the_call_in_flight_and_no_other_is_made(build: Build, backend: Backend) -> None:
    installation = build(backend, latency=60.0)
    host = installation.start_work(1, after=1)
    cancelled = installation.provider.calls[0].place[0]
    others = installation.submit(THREE_STEPS.name, 5)
    installation.wait_for_calls(6)
    installation.provider.latency = 0.1

    asked_at = time.monotonic()
    installation.observer.ask("cancel", runs=[cancelled])
    wait_until(lambda: "cancelled" in installation.count_runs(), within=CANCEL_LIMIT, what="it is cancelled")
    (call,) = installation.provider.calls_of(cancelled)
    wait_until(lambda: call.ended_at, within=CANCEL_LIMIT, what="the provider sees that nobody waits any more")
    assert call.status is None and call.ended_at is not None and call.ended_at > asked_at
    assert installation.provider.in_flight == len(others)

    # The others are let go on: had the run been left somewhere, it would go on as well.
    with installation.death("cluster"):
        host.kill()
    host.start()
    installation.check_end({"cancelled": 1, "succeeded": len(others)})
    assert installation.provider.calls_of(cancelled) == [call]


@pytest.mark.nightly
def test_a_queued_run_is_cancelled_at_once_and_never_makes_a_call(installation: Installation) -> None:
    runs = installation.submit(THREE_STEPS, 10)
    assert installation.observer.ask("cancel", runs=runs[:5]) == 5
    assert installation.count_runs() == {"cancelled": 5, "queued": 5}
    installation.start_host()
    installation.check_end({"cancelled": 5, "succeeded": 5})
    assert not any(installation.provider.calls_of(run) for run in runs[:5])


@pytest.mark.nightly
def test_a_cancel_outlives_the_worker_that_should_have_heeded_it(build: Build, backend: Backend) -> None:
    installation = build(backend, latency=60.0)
    host = installation.start_work(8, after=8)
    runs = sorted(call.place[0] for call in installation.provider.calls)
    installation.provider.latency = 0.1
    drains = host.find_drains()
    installation.observer.ask("cancel", runs=runs[:4])
    installation.kill("drain", drains)
    installation.check_end({"cancelled": 4, "succeeded": 4})
    assert all(len(installation.provider.calls_of(run)) == 1 for run in runs[:4])


def test_no_call_is_made_after_a_budget_is_used_up_although_the_worker_was_killed(installation: Installation) -> None:
    flow = THREE_STEPS.name
    host = installation.start_work(1, after=1)
    installation.wait_for_all()
    (whole,) = installation.read_runs()
    # Of the next runs the second call uses the budget up.
    budget = whole.attempts[0].usage["total"] + 1
    runs = installation.submit(flow, 20, token_budget=budget)
    installation.wait_for_calls(15)
    installation.kill("drain", host.find_drains())
    installation.check_end({"succeeded": 1, "errored": 20})
    ended = {run.pk: run for run in installation.read_runs()}
    assert {(ended[run].status, ended[run].end_reason) for run in runs} == {("errored", "budget_exceeded")}
    assert {ended[run].planned_end for run in runs} == {("errored", "budget_exceeded")}
    for run in runs:
        used = 0
        for attempt in ended[run].attempts:
            assert used < budget, f"Run {run} made call {attempt.step}.{attempt.number} with {used} tokens used."
            used += attempt.usage["total"]
        assert used >= budget
        # An interrupted attempt that had not reached the provider leaves one call less.
        assert len(installation.provider.calls_of(run)) <= len(ended[run].attempts)


@pytest.mark.nightly
def test_what_all_runs_of_a_flow_use_is_counted_once_although_the_worker_was_killed(installation: Installation) -> None:
    flow = THREE_STEPS.name
    host = installation.start_work(1, after=1)
    installation.wait_for_all()
    (whole,) = installation.read_runs()
    budget = 10 * whole.counts["total tokens"]
    installation.observer.ask("limit_flow", flow=flow, tokens=budget)
    # A drain looks for budgets every few seconds: what it stores before it knows of one is not counted.
    wait_until(
        lambda: installation.observer.ask("read_spending", flow=flow) == whole.counts["total tokens"],
        within=60,
        what="the drain knows of the budget",
    )
    installation.submit(flow, 24)
    installation.wait_for_calls(15)
    installation.kill("drain", host.find_drains())
    installation.wait_for_all()

    verdict = installation.judge()
    assert verdict.problems == []
    assert verdict.runs["errored"] > 0
    runs = installation.read_runs()
    assert {run.end_reason for run in runs if run.status == "errored"} == {"budget_exceeded"}
    attempts = [attempt for run in runs for attempt in run.attempts if attempt.ended_at]
    assert installation.observer.ask("read_spending", flow=flow) == sum(one.usage["total"] for one in attempts)
    used = 0
    for attempt in sorted(attempts, key=lambda one: one.ended_at or one.started_at):
        used += attempt.usage["total"]
        if used >= budget:
            break
    assert used >= budget and attempt.ended_at is not None
    # What ended has to be stored before it counts.
    settled = attempt.ended_at + timedelta(seconds=1)
    assert not [one for one in attempts if one.started_at > settled], "A call was made after the budget was used up."
