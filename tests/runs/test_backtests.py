"""Backtests as rows: which runs are judged, what is counted, kept and saved, and that a crash changes no total."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.engine.backtest_result import BacktestKind
from flows.engine.history import MARK
from flows.engine.spec import FlowSpec
from flows.models import Flow
from runs.backtests import requests, savings, work
from runs.backtests.predictions import load_prediction, load_without_each
from runs.backtests.savings import PastTries, load_past_tries, sum_saving
from runs.backtests.totals import Totals
from runs.filters import RunFilters
from runs.models import Backtest, DailyRuns, Issue, Run, WorkState
from runs.retention.purging import delete_runs, remove_outputs
from runs.retention.tasks import delete_batch, find_expired
from runs.seeding import seed_history
from runs.seeding.planted import COST
from runs.stored_history import load_histories, load_history
from tests.runs.backtest_rows import ask, backtest, finish, make_audited_flow, store_history, store_run
from tests.runs.builders import claim_run, make_run, make_version

pytestmark = pytest.mark.django_db


def count_kinds(found: Backtest) -> dict[str, int]:
    """How many runs there are of each kind."""
    return {kind.value: totals.runs for kind, totals in Totals.from_document(found.totals).result.kinds.items()}


class TestTotals:
    def test_runs_end_sooner_under_a_lower_bound(self) -> None:
        runs = store_history()
        found = backtest(make_audited_flow(5))
        assert (found.state, found.position, count_kinds(found)) == (WorkState.DONE, 4, {"same": 2, "sooner": 2})
        totals = Totals.from_document(found.totals)
        sooner = totals.get(BacktestKind.SOONER)
        assert (sooner.attempts_saved, str(sooner.saved.cost), totals.retries) == (3, "0.03000000", 6)
        assert totals.retry_change == -0.5
        rows = {row.run_id: row for row in found.runs.all()}
        assert rows.keys() == {runs[1].pk, runs[2].pk}
        row = rows[runs[2].pk]
        assert (row.step, row.attempt, row.attempts_saved, row.ended, row.ends) == (1, 1, 2, "succeeded", "succeeded")
        assert [issue["audit"] for issue in row.gone] == ["Is long"]
        assert row.new == []

    def test_the_limits_of_a_run_hold_for_the_candidate(self) -> None:
        version = make_version(make_audited_flow())
        # Its own budget of tokens ended it after the second attempt.
        store_run(version, "short", "short", token_budget=150, status="errored", end_reason="budget_exceeded")
        assert count_kinds(backtest(make_audited_flow())) == {"same": 1}


class TestRuns:
    def test_old_backtests_go_but_those_of_what_was_published(self) -> None:
        store_history()
        backtest(make_audited_flow(7))
        backtest(make_audited_flow(5))
        predicted = backtest(make_audited_flow(5))
        published = make_version(make_audited_flow(5))
        backtest(published, filters=RunFilters("status=failed"))
        Backtest.objects.update(ended_at=timezone.now() - timedelta(days=91))
        recent = backtest(make_audited_flow(6))
        expired = find_expired(timezone.now())["backtests"]
        assert [delete_batch(expired) for _ in range(4)] == [1, 1, 1, 0]
        assert set(Backtest.objects.all()) == {predicted, recent}

    def test_of_deleted_runs_and_removed_outputs_nothing_is_reported(self) -> None:
        runs = store_history()
        found = ask(make_audited_flow(5))
        delete_runs([runs[0].pk])
        remove_outputs([runs[1].pk])
        assert count_kinds(finish(found)) == {"same": 1, "sooner": 1, "removed": 2}

    def test_retention_takes_rows_and_texts_along(self) -> None:
        runs = store_history()
        found = backtest(make_audited_flow(5))
        delete_runs([runs[1].pk])
        remove_outputs([runs[2].pk])
        (row,) = found.runs.all()
        assert (row.run_id, row.gone, row.kind) == (runs[2].pk, [], "sooner")

    def test_texts_that_are_removed_while_they_are_judged_do_not_come_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs = store_history()
        load = work.load_histories

        def load_and_remove(some: Any) -> Any:
            found = load(some)
            remove_outputs([run.pk for run in runs])
            return found

        monkeypatch.setattr(work, "load_histories", load_and_remove)
        found = backtest(make_audited_flow(5))
        assert count_kinds(found) == {"same": 2, "sooner": 2}
        assert [(row.gone, row.new, row.sentence) for row in found.runs.all()] == [([], [], "")] * 2

    def test_histories_of_many_runs_take_as_many_queries_as_those_of_one(self) -> None:
        runs = [Run.objects.get(pk=run.pk) for run in store_history()]
        counts = []
        for some in (runs[:1], runs):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                found = load_histories(some)
            counts.append(len(queries))
        assert counts[0] == counts[1]
        assert found == {run.pk: load_history(run) for run in runs}


class TestWork:
    @pytest.fixture(autouse=True)
    def _small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(work, "BATCH_SIZE", 1)

    def test_killed_twice_in_the_middle_it_has_the_same_totals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store_history()
        whole = backtest(make_audited_flow(5))
        killed = ask(make_audited_flow(5))
        advance, calls = Backtest.advance, iter(range(100))

        def die(self: Backtest, **values: Any) -> None:
            advance(self, **values)
            # Before the commit: nothing of the batch stays.
            if next(calls) in (1, 3):
                raise OperationalError("killed")

        monkeypatch.setattr(Backtest, "advance", die)
        for _ in range(2):
            with pytest.raises(OperationalError):
                finish(killed)
        finish(killed)
        assert (killed.state, killed.totals) == (WorkState.DONE, whole.totals)
        columns = ("run", "kind", "step", "attempt", "attempts_saved", "gone")
        rows = [list(one.runs.order_by("run_id").values_list(*columns)) for one in (killed, whole)]
        assert rows[0] == rows[1]

    def test_two_tasks_at_once_count_nothing_twice(self) -> None:
        store_history()
        found = ask(make_audited_flow(5))
        one, other = work._Work(found), work._Work(found)
        assert all([one.do_batch(), other.do_batch(), one.do_batch(), other.do_batch()])
        finish(found)
        assert (found.position, count_kinds(found)) == (4, {"same": 2, "sooner": 2})

    def test_a_run_that_takes_too_long_keeps_no_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def hang(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(work, "MAX_RUN_SECONDS", 0.01)
        monkeypatch.setattr(work, "backtest_run", hang)
        store_history()
        found = backtest(make_audited_flow(5))
        assert (found.state, count_kinds(found)) == (WorkState.DONE, {"not_reproducible": 4})
        assert all(row.sentence for row in found.runs.all())

    def test_a_run_that_kills_its_task_three_times_fails_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = store_history()
        monkeypatch.setattr(work, "BATCH_SIZE", 50)
        found = ask(make_audited_flow(5))
        judge, started = work._Work._judge, []

        async def die(self: Any, run: Run, *rest: Any) -> Any:
            started.append(run.pk)
            if run.pk == runs[1].pk:
                raise SystemExit
            return await judge(self, run, *rest)

        monkeypatch.setattr(work._Work, "_judge", die)
        # The first task also judged others, and the second one stored these.
        for _ in range(2 + work.MAX_TASK_LOSSES):
            with pytest.raises(SystemExit):
                finish(found)
        found.refresh_from_db()
        assert found.state == WorkState.WORKING
        finish(found)
        assert (found.state, found.position) == (WorkState.FAILED, 2)
        assert f"run {runs[1].pk}, 3 of 4" in found.problem
        assert started.count(runs[1].pk) == 2 + work.MAX_TASK_LOSSES

    def test_a_definition_that_can_not_run_here_fails_it(self) -> None:
        store_history()
        found = ask(make_audited_flow())
        Backtest.objects.filter(pk=found.pk).update(document={"name": "texts", "steps": [{"name": "S"}]})
        assert finish(found).state == WorkState.FAILED
        assert found.problem

    def test_one_without_a_task_gets_a_new_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store_history()
        found = ask(make_audited_flow())
        sent: list[int] = []
        monkeypatch.setattr(work, "send_task", sent.append)
        assert work.resume_all() == 0
        Backtest.objects.filter(pk=found.pk).update(heartbeat_at=timezone.now() - 2 * work.LOST_AFTER)
        assert (work.resume_all(), work.resume_all(), sent) == (1, 0, [found.pk])


class TestPredictions:
    def test_leaving_out_each_audit(self) -> None:
        version = store_history()[0].version
        found = backtest(version, leaves_out_each=True)
        without = Totals.from_document(found.totals).without
        saved = {one.audit: (one.judged, one.sooner, one.freed, one.retries_saved) for one in without}
        assert saved == {"Is long": (4, 3, 1, 6), "Has no x": (4, 0, 0, 0)}
        assert not found.runs.exists()
        assert load_without_each(version) == found
        # It is about the version itself.
        assert not Backtest.objects.listed().exists()
        assert load_prediction(version) is None

    def test_are_kept_with_the_version_and_held_against_what_came(self) -> None:
        store_history()
        predicted = backtest(make_audited_flow(5))
        version = make_version(make_audited_flow(5))
        found = load_prediction(version)
        assert found is not None
        assert (found["backtest"], found["predicted"], found["since"]) == (predicted, "\N{MINUS SIGN}50 %", "")
        # Before there were 6 retries in 4 runs.
        Backtest.objects.update(created_at=timezone.now() - timedelta(days=1))
        values = {"flow": version.flow, "version": version, "day": timezone.now().date()}
        DailyRuns.objects.create(**values, runs=20, retries=15)
        # Runs before it and simulated ones are none of what came, and other runs than those predict nothing.
        DailyRuns.objects.create(**{**values, "day": values["day"] - timedelta(days=2)}, runs=50, retries=100)
        DailyRuns.objects.create(**values, is_simulated=True, runs=50, retries=100)
        backtest(make_audited_flow(5), filters=RunFilters("status=failed"))
        # Judged by itself, it says nothing of what it would change.
        backtest(version)
        found = load_prediction(version)
        assert found is not None
        assert (found["backtest"], found["since"], found["runs"]) == (predicted, "\N{MINUS SIGN}50 %", 20)
        # Runs that retry take longer, so that the first ones to end say too much.
        for said in ("\N{MINUS SIGN}50 %", "\N{MINUS SIGN}50 %", ""):
            claim_run(make_run(version))
            found = load_prediction(version)
            assert found is not None and found["since"] == said
        # By whatever name the flow had.
        Flow.objects.update(name="renamed")
        assert load_prediction(version) is not None


READ, WRITE = "Read the order", "Write the confirmation"
SAVINGS = "/admin/flows/flow/savings/"


@pytest.fixture
def flow() -> Flow:
    """Fifty runs of the flow with known truths."""
    seed_history(runs=0, planted=50, until=timezone.now())
    return Flow.objects.select_related("live_version").get()


def change(flow: Flow, index: int, **changes: Any) -> FlowSpec:
    """The live definition with other limits in a step."""
    spec = flow.live_version.flow_spec  # type: ignore[union-attr]  # it has one
    steps = list(spec.steps)
    steps[index - 1] = steps[index - 1].model_copy(update=changes)
    return spec.model_copy(update={"steps": tuple(steps)})


@pytest.mark.parametrize(
    ("index", "changes", "expected"),
    [
        (1, {"stall_after": 2}, (8, 0)),
        (1, {"stall_after": 3}, (4, 0)),
        (1, {"max_retries": 0}, (12, 0)),
        (3, {"max_retries": 1}, (0, 0)),
        (3, {"max_retries": 0}, (20, 20)),
    ],
)
def test_savings_are_those_of_a_backtest(
    flow: Flow, index: int, changes: dict[str, int], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = change(flow, index, **changes)
    step = spec.steps[index - 1]
    saving = sum_saving(step, load_past_tries(flow, step.name))
    assert (saving.retries, saving.lost) == expected
    assert (saving.usage.cost or 0) == COST * saving.retries
    monkeypatch.setattr(requests, "send_task", lambda _: None)
    totals = Totals.from_document(finish(requests.request_backtest(flow=flow, candidate=spec)).totals)
    kinds = [totals.get(kind) for kind in (BacktestKind.SOONER, BacktestKind.REFUSED)]
    assert sum(kind.retries_saved for kind in kinds) == saving.retries
    assert sum(kind.saved.cost or 0 for kind in kinds) == (saving.usage.cost or 0)
    assert kinds[1].runs == saving.lost


def test_runs_that_passed_later_are_counted() -> None:
    store_history()
    flow = Flow.objects.get()
    step = make_audited_flow().steps[0]
    past = load_past_tries(flow, step.name)
    saving = sum_saving(step.model_copy(update={"stall_after": 2}), past)
    # Both fail for the same issue twice; one of them passes in its third attempt.
    assert (saving.retries, saving.lost) == (3, 1)
    Run.objects.update(outputs_removed_at=timezone.now())
    assert load_past_tries(flow, step.name) == PastTries(0, [])


def test_redacted_outputs_do_not_count_as_equal() -> None:
    version = make_version(make_audited_flow())
    store_run(version, *[MARK[:-1]] * 3, "long enough")
    # Nor do their issues.
    for number, row in enumerate(Issue.objects.all()):
        row.path = f"/{number}"
        row.save()
    step = make_audited_flow().steps[0]
    saving = sum_saving(step.model_copy(update={"stall_after": 2}), load_past_tries(version.flow, step.name))
    assert saving.retries == 0


def test_nothing_is_said_of_more_issues_than_are_read(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings, "MAX_ISSUES", 3)
    assert load_past_tries(flow, READ) == PastTries(0, ())


class TestView:
    @pytest.mark.parametrize("step", ["Pick the carrier", "No such step", ""])
    def test_has_none_for_other_steps(self, admin_client: Client, flow: Flow, step: str) -> None:
        answer = admin_client.post(SAVINGS, {"flow": flow.pk, "step": step}, content_type="application/json")
        assert (answer.status_code, answer.json()) == (200, {})

    @pytest.mark.parametrize("posted", [{"flow": "x"}, {"flow": 1, "step": 1}, [], "nothing"])
    def test_refuses_what_is_no_question(self, admin_client: Client, posted: Any) -> None:
        assert admin_client.post(SAVINGS, posted, content_type="application/json").status_code == 400
