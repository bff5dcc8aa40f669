"""A drain among others: slots, shutdown, and what it shows of itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from flows.engine.simulated_model import Fault, FaultKind
from runs.models import Attempt, EndReason, FlowSpending, Run, RunStatus, Worker
from runs.ownership import Owner
from runs.queue import draining, force_quit
from runs.spending import FlowBudget
from runs.worker import tasks
from runs.worker.tasks import hold_slot
from tests.engine.builders import make_flow, make_step, make_usage
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

TEA = {"text": "Tea is a warm drink."}


@pytest.fixture(autouse=True)
def _own_slots(settings: Any, tmp_path: Any) -> Iterator[None]:
    settings.TOOLFLOW_DATA_DIR = tmp_path
    yield
    draining.clear()
    force_quit.clear()


def drain(*, leaves_when_idle: bool = True) -> str:
    return tasks.drain(leaves_when_idle=leaves_when_idle)


def in_another_thread(action: Any) -> None:
    """Do what needs the database while the model's event loop waits: Django refuses it there."""

    def act() -> None:
        action()
        connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


class TestSlots:
    def test_a_host_has_one_drain_less_than_worker_processes(self, settings: Any) -> None:
        settings.TOOLFLOW_WORKERS = 3
        with hold_slot() as first:
            with hold_slot() as second, hold_slot() as third:
                assert (first, second, third) == (True, True, False)
            with hold_slot() as second:
                assert second

    def test_a_second_drain_leaves_the_work_to_the_first(self, provider: ModelServer) -> None:
        make_run()
        with hold_slot():
            assert drain() == "All slots of this host are taken."
        assert drain() == "Worked on 1 runs."
        assert Run.objects.get().status == RunStatus.SUCCEEDED


class TestShutdown:
    def test_a_worker_that_stops_lets_its_call_end_and_gives_the_run_back_behind_it(
        self, provider: ModelServer
    ) -> None:
        def stop_worker(request: dict[str, Any], step_input: Any) -> dict[str, str]:
            draining.set()
            return TEA

        run = make_run(make_version(make_flow(make_step(1), make_step(2))))
        script(provider, tool_1=[stop_worker], tool_2=[TEA])
        drain()
        run.refresh_from_db()
        assert (run.status, run.owner, run.attempt_count, run.next_model) == (RunStatus.QUEUED, "", 1, "gpt-4.1")
        assert Attempt.objects.get().outcome == "passed"

        draining.clear()
        drain()
        run.refresh_from_db()
        assert (run.status, run.attempt_count, run.crashes) == (RunStatus.SUCCEEDED, 2, 0)
        assert provider.app.call_count == 2

    def test_a_worker_that_is_told_to_hurry_breaks_its_calls_off_and_says_so_in_the_history(
        self, provider: ModelServer
    ) -> None:
        def hurry(request: dict[str, Any], step_input: Any) -> Fault:
            draining.set()
            force_quit.set()
            return Fault(FaultKind.HANG)

        run = make_run()
        script(provider, tool_1=[hurry])
        drain()
        run.refresh_from_db()
        assert (run.status, run.crashes) == (RunStatus.QUEUED, 0)
        assert Attempt.objects.get().outcome == "interrupted"

        draining.clear()
        force_quit.clear()
        script(provider, tool_1=[TEA])
        drain()
        run.refresh_from_db()
        assert (run.status, run.retry_count) == (RunStatus.SUCCEEDED, 0)

    def test_a_worker_that_stops_takes_nothing_more(self, provider: ModelServer) -> None:
        make_run()
        draining.set()
        assert drain() == "The worker stops."
        assert Run.objects.get().status == RunStatus.QUEUED


class TestWhatADrainShows:
    def test_it_is_listed_while_it_works_and_gone_when_it_ends(self, provider: ModelServer) -> None:
        seen: list[Worker] = []

        def look(request: dict[str, Any], step_input: Any) -> dict[str, str]:
            in_another_thread(lambda: seen.extend(Worker.objects.alive()))
            return TEA

        make_run()
        script(provider, tool_1=[look])
        drain()
        (worker,) = seen
        owner = Owner.parse(worker.owner)
        assert owner is not None and not owner.is_gone
        assert (worker.host, worker.pid, worker.slots) == (owner.host, owner.pid, 200)
        assert not Worker.objects.exists()


class TestBudgetOfAFlow:
    def test_no_call_is_made_once_the_runs_of_a_flow_have_used_its_budget(self, provider: ModelServer) -> None:
        version = make_version(make_flow(make_step(1), make_step(2)))
        version.flow.total_token_budget = 1
        version.flow.save()
        script(provider, tool_1=[TEA], tool_2=[TEA])
        first, second = make_run(version), make_run(version)
        for _ in range(2):
            drain()
        for run in (first, second):
            run.refresh_from_db()
            assert (run.status, run.end_reason) == (RunStatus.ERRORED, EndReason.BUDGET_EXCEEDED)
        used = sum(run.total_tokens for run in (first, second))
        assert FlowSpending.objects.get().tokens == used
        assert f"for the month (UTC): budget of 1 token used ({used:,})." in second.end_sentence
        # Both had begun their first step before either had used anything.
        assert provider.app.call_count <= 2

    def test_what_is_in_flight_counts_at_once_and_once(self) -> None:
        budget = FlowBudget("Tea", "month", token_budget=50, cost_budget=None, tokens=10)
        usage = make_usage(30)
        budget.in_flight[7] = usage
        assert budget.find_end() is None
        budget.add_stored(7, usage)
        assert budget.find_end() is None and budget.tokens == 40
        budget.in_flight[7] = make_usage(10)
        assert budget.find_end() is not None

    def test_runs_from_before_the_budget_was_set_count(self, provider: ModelServer) -> None:
        version = make_version(make_flow(make_step(1)))
        script(provider, tool_1=[TEA])
        earlier = make_run(version)
        drain()
        earlier.refresh_from_db()
        # Used to the last token: nothing is left.
        version.flow.total_token_budget = earlier.total_tokens
        version.flow.save()
        late = make_run(version)
        drain()
        late.refresh_from_db()
        assert (late.end_reason, late.attempt_count) == (EndReason.BUDGET_EXCEEDED, 0)
        assert provider.app.call_count == 1
