"""Backtests as rows: which runs are judged, what is counted and kept, and that a crash changes no total."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.engine.backtest_result import BacktestKind, BacktestReason, BacktestResult, KindTotals, RunBacktest
from flows.engine.history import History, TokenUsage, initial_attempt
from flows.engine.planner import EndStatus
from flows.models import FlowVersion
from runs.api.backtests import build_totals
from runs.backtests import requests, work
from runs.backtests.predictions import load_prediction, load_without_each
from runs.backtests.requests import TooManyBacktestsError, stop_backtest
from runs.backtests.totals import Totals, WithoutAudit, describe_totals
from runs.filters import RunFilters
from runs.models import AuditEntry, Backtest, DailyRuns, Run, WorkState
from runs.retention.purging import delete_runs, remove_outputs
from runs.retention.tasks import delete_batch, find_expired
from runs.stored_history import load_histories, load_history
from tests.engine.builders import make_attempt
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

    def test_retries_saved_in_refused_runs_change_their_number_too(self) -> None:
        version = make_version(make_audited_flow())
        store_run(version, "short", "shorter", "long enough")
        store_run(version, "no", "x", "no", "no")
        totals = Totals.from_document(backtest(make_audited_flow(max_retries=1)).totals)
        assert (totals.retries, totals.retries_saved, totals.retry_change) == (5, 3, -0.6)

    def test_the_limits_of_a_run_hold_for_the_candidate(self) -> None:
        version = make_version(make_audited_flow())
        # Its own budget of tokens ended it after the second attempt.
        store_run(version, "short", "short", token_budget=150, status="errored", end_reason="budget_exceeded")
        assert count_kinds(backtest(make_audited_flow())) == {"same": 1}

    def test_open_ends_and_unknown_prices_are_told(self) -> None:
        usage = TokenUsage(total=10, cost=Decimal("0.01"), unpriced=1)
        result = BacktestResult(
            {
                BacktestKind.SOONER: KindTotals(runs=2, open=1),
                BacktestKind.REFUSED: KindTotals(runs=1, further_calls=2, further=usage),
            }
        )
        sentence = describe_totals(Totals(result))
        assert "2 sooner, 1 of them with an open end," in sentence
        assert "(at least 2 more calls, about ≥ $0.0100)" in sentence
        shown = build_totals(Totals(result))
        assert (shown["open"], shown["unpriced_more"]) == (1, 1)


class TestRuns:
    def test_are_those_that_ended_and_match(self) -> None:
        runs = store_history()
        make_run(runs[0].version)
        assert ask(make_audited_flow()).run_ids == [run.pk for run in reversed(runs)]
        assert ask(make_audited_flow(), limit=2).run_ids == [runs[3].pk, runs[2].pk]
        assert ask(make_audited_flow(), filters=RunFilters("status=failed")).run_ids == [runs[3].pk]

    def test_those_that_no_list_shows_take_no_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        version = store_history()[0].version
        monkeypatch.setattr(requests, "MAX_UNFINISHED", 1)
        ask(version, leaves_out_each=True)
        ask(version)
        with pytest.raises(TooManyBacktestsError):
            ask(version, leaves_out_each=True)

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

    def test_of_deleted_runs_and_removed_outputs_nothing_is_told(self) -> None:
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

    def test_goes_on_where_a_task_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store_history()
        sent: list[int] = []
        found = ask(make_audited_flow(5))
        monkeypatch.setattr(work, "send_task", sent.append)
        for position in (1, 2, 3, 4):
            work.work_on(found.pk, timeout=0)
            found.refresh_from_db()
            assert found.position == position
        assert sent == [found.pk] * 3
        assert found.state == WorkState.DONE

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

    def test_no_packet_leaves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise AssertionError("a socket was opened")

        for name in ("connect", "connect_ex", "sendto"):
            monkeypatch.setattr(socket.socket, name, refuse)
        store_history()
        assert backtest(make_audited_flow(5)).state == WorkState.DONE

    def test_a_batch_ends_at_the_end_of_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(work, "BATCH_SIZE", 50)
        store_history()
        found = ask(make_audited_flow(5))
        assert work._Work(found).do_batch(deadline=0)
        found.refresh_from_db()
        assert found.position == 1
        assert count_kinds(finish(found)) == {"same": 2, "sooner": 2}

    def test_a_run_that_takes_too_long_keeps_no_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def hang(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(work, "MAX_RUN_SECONDS", 0.01)
        monkeypatch.setattr(work, "backtest_run", hang)
        store_history()
        found = backtest(make_audited_flow(5))
        assert (found.state, count_kinds(found)) == (WorkState.DONE, {"not_reproducible": 4})
        assert all(row.sentence for row in found.runs.all())

    def test_leaving_out_each_audit_counts_runs_that_can_not_be_judged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def hang(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        version = store_history()[0].version
        monkeypatch.setattr(work, "MAX_RUN_SECONDS", 0.01)
        monkeypatch.setattr(work, "leave_one_out", hang)
        found = backtest(version, leaves_out_each=True)
        totals = Totals.from_document(found.totals)
        assert (count_kinds(found), totals.without) == ({"not_reproducible": 4}, ())
        assert totals.result.reasons == {BacktestReason.DIFFERS: 4}

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
        for _ in range(2 + work.MAX_TRIES):
            with pytest.raises(SystemExit):
                finish(found)
        found.refresh_from_db()
        assert found.state == WorkState.WORKING
        finish(found)
        assert (found.state, found.position) == (WorkState.FAILED, 2)
        assert f"run {runs[1].pk}, 3 of 4" in found.problem
        assert started.count(runs[1].pk) == 2 + work.MAX_TRIES

    def test_stops_where_a_user_stops_it(self) -> None:
        store_history()
        found = ask(make_audited_flow(5))
        work._Work(found).do_batch()
        found.refresh_from_db()
        assert stop_backtest(found)
        assert not stop_backtest(found)
        finish(found)
        assert (found.state, found.position) == (WorkState.STOPPED, 1)
        assert set(AuditEntry.objects.values_list("action", flat=True)) >= {"backtest_started", "backtest_stopped"}

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

    @pytest.mark.parametrize(
        ("outcomes", "ends", "expected"),
        [
            (("failed", "passed"), EndStatus.SUCCEEDED, (0, 0)),
            (("failed", "failed"), EndStatus.SUCCEEDED, (1, 1)),
            # The best output was accepted, or what follows is not known.
            (("failed", "failed"), None, (1, 1)),
            # It is only stuck sooner.
            (("failed", "failed"), EndStatus.FAILED, (1, 0)),
        ],
    )
    def test_an_audit_only_costs_retries_where_its_step_passed_in_the_end(
        self, outcomes: tuple[str, ...], ends: EndStatus | None, expected: tuple[int, int]
    ) -> None:
        tries = [make_attempt(1, number, outcome) for number, outcome in enumerate(outcomes, start=1)]
        history = History.from_attempts([initial_attempt({}), *tries], run_id="1")
        result = BacktestResult.of([RunBacktest(BacktestKind.SOONER, ends=ends)])
        found = WithoutAudit.of((1, "Is long"), result, history)
        assert (found.unpassed, found.freed) == expected

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


@pytest.mark.django_db(transaction=True)
def test_requests_for_several_flows_at_once_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = []
    for name in ("one", "two", "three", "four"):
        versions.append(make_version(make_audited_flow(name=name, title=name)))
        store_run(versions[-1], "long enough")
    monkeypatch.setattr(requests, "MAX_UNFINISHED", 1)
    monkeypatch.setattr(requests, "send_task", int)
    start = threading.Barrier(len(versions))

    def request(version: FlowVersion) -> bool:
        try:
            start.wait()
            requests.request_backtest(flow=version.flow, candidate=version)
        except TooManyBacktestsError:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(len(versions)) as threads:
        assert sum(threads.map(request, versions)) == 1
    assert Backtest.objects.count() == 1
