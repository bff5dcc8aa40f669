"""What is counted of runs that have ended, by flow, version and day."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import ProtectedError, Sum
from django.test.utils import CaptureQueriesContext

from flows.engine.history import Attempt, Outcome
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec
from runs.locks import STATISTICS, acquire, release
from runs.models import Attempt as AttemptRow
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps, Run
from runs.rollup import count_ended_runs
from runs.statistics.durations import merge_counts, read_percentile
from runs.statistics.rebuilding import LEASE
from tests.engine.builders import NOON, make_attempt, make_flow, make_issue, make_step, make_usage
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.recounting import read_statistics, recount
from tests.runs.varied_runs import make_varied_runs, make_versions

pytestmark = pytest.mark.sql

LONG_ENOUGH = AuditSpec(name="Long enough", rule="size(output.text) >= 10", message="'Too short.'")
GOOD, SHORT = {"text": "Tea is a warm drink."}, {"text": "Tea."}


def count_all(*, limit: int = 100) -> None:
    while count_ended_runs(limit=limit):
        pass


def sum_rows(model: type[DailyRuns]) -> dict[str, Any]:
    """The sums of some numbers over all rows: every stored run of these tests has a version of its own."""
    names = ("runs", "first_time", "attempts", "retries", "first_tokens", "useful_retry_tokens", "wasted_retry_tokens")
    return model.objects.aggregate(**{name: Sum(name) for name in names})


@pytest.mark.django_db(transaction=True)
class TestRunsThatWereExecuted:
    def test_retries_failures_errors_and_cancelled_runs_are_counted_as_their_history_says(
        self, provider: ModelServer
    ) -> None:
        # Nothing is counted before all has happened.
        token = acquire(STATISTICS, LEASE)
        assert token is not None
        step = make_step(1, audits=[LONG_ENOUGH], max_retries=2)
        first = make_version(make_flow(step, make_step(2)))
        second = make_version(make_flow(step, make_step(2, model="gpt-4.1-mini"), make_step(3, compute="{'n': 1}")))
        for replies in (
            {"tool_1": [GOOD], "tool_2": [GOOD]},
            {"tool_1": [SHORT, GOOD], "tool_2": [{"text": 5}, GOOD]},
            {"tool_1": [SHORT, SHORT, Fault(FaultKind.REFUSAL)]},
            {"tool_1": [GOOD], "tool_2": [Fault(FaultKind.MALFORMED), GOOD]},
        ):
            script(provider, **replies)
            runs = [make_run(version) for version in (first, second)]
            drain()
        make_run(second).request_cancel()
        self._break_off(runs[0])
        Run.objects.filter(pk=runs[1].pk).update(ended_at=NOON, started_at=NOON - timedelta(seconds=90))
        release(STATISTICS, token)
        count_all(limit=3)
        ended = Run.objects.all()
        assert {run.status for run in ended} == {"succeeded", "failed", "cancelled"}
        assert read_statistics() == recount(ended)

    def _break_off(self, run: Run) -> None:
        """Let the worker of a run die in its last attempt, and another go on with it."""
        last = AttemptRow.objects.filter(step__run=run).latest("step__index", "number")
        last.usage.delete()
        last.end_without_output(Outcome.INTERRUPTED)
        Run.objects.filter(pk=run.pk).update(status="queued", ended_at=None)
        drain()


@pytest.mark.django_db
class TestAgreement:
    @pytest.mark.parametrize("seed", [1, 2])
    def test_any_runs_counted_in_any_batches_come_to_what_their_rows_say(self, seed: int) -> None:
        runs = make_varied_runs(40, seed=seed)
        count_all(limit=7)
        assert read_statistics() == recount(runs)

    def test_statements_don_t_grow_in_number_with_runs(self) -> None:
        def count_statements(runs: int) -> int:
            make_varied_runs(runs, seed=runs)
            with CaptureQueriesContext(connection) as captured:
                count_ended_runs()
            return len(captured)

        count_statements(30)
        assert count_statements(6) == count_statements(30)


@pytest.mark.django_db
class TestRuns:
    def test_a_run_counts_on_the_day_of_its_end_in_utc_wherever_the_worker_is(self, settings: Any) -> None:
        settings.TIME_ZONE = "Asia/Tokyo"
        midnight = NOON.replace(hour=0)
        version = make_version()
        for ended_at in (midnight - timedelta(microseconds=1), midnight, midnight + timedelta(hours=23)):
            make_run(version, status="succeeded", ended_at=ended_at)
        count_all()
        counted = DailyRuns.objects.order_by("day").values_list("day", "runs")
        assert list(counted) == [(date(2026, 11, 20), 1), (date(2026, 11, 21), 2)]

    def test_versions_and_invented_answers_are_kept_apart(self) -> None:
        first, second, *_ = make_versions()
        for version, is_simulated in ((first, False), (first, True), (second, False), (first, False)):
            make_run(version, status="succeeded", ended_at=NOON, is_simulated=is_simulated)
        count_all()
        counted = DailyRuns.objects.order_by("version", "is_simulated")
        assert list(counted.values_list("version", "is_simulated", "runs")) == [
            (first.pk, False, 2),
            (first.pk, True, 1),
            (second.pk, False, 1),
        ]

    def test_one_that_was_cancelled_in_the_queue_counts_and_has_no_duration(self) -> None:
        make_run().request_cancel()
        count_all()
        row = DailyRuns.objects.get()
        assert (row.runs, row.cancelled, row.attempts, row.timed, row.durations) == (1, 1, 0, 0, {})

    def test_durations_give_percentiles_over_days(self) -> None:
        version = make_version()
        for seconds in (1, 2, 3, 100):
            ended_at = NOON + timedelta(days=seconds % 2)
            make_run(version, status="failed", ended_at=ended_at, started_at=ended_at - timedelta(seconds=seconds))
            count_all()
        rows = DailyRuns.objects.order_by("day")
        assert [row.duration_total.total_seconds() for row in rows] == [102, 4]
        durations = merge_counts(row.durations for row in rows)
        assert read_percentile(durations, 50) == pytest.approx(2, rel=0.025)
        assert read_percentile(durations, 95) == pytest.approx(100, rel=0.025)

    def test_a_run_that_went_on_after_an_interruption_succeeded_the_first_time(self) -> None:
        make_stored_run(make_attempt(1, 1, "interrupted"), make_attempt(1, 2, usage=make_usage(50)))
        make_stored_run(make_attempt(1, 1, "failed", usage=make_usage(20)), make_attempt(1, 2, usage=make_usage(30)))
        count_all()
        row = sum_rows(DailyRuns)
        assert (row["runs"], row["first_time"], row["attempts"], row["retries"]) == (2, 1, 4, 1)
        assert (row["first_tokens"], row["useful_retry_tokens"], row["wasted_retry_tokens"]) == (70, 30, 0)

    def test_cost_is_that_of_attempts_with_a_price_and_the_others_are_counted(self) -> None:
        priced = make_usage(10, cost=Decimal("0.00000123"))
        make_stored_run(make_attempt(1, 1, "failed", usage=priced), make_attempt(1, 2, usage=make_usage(5, unpriced=1)))
        count_all()
        row = DailyRuns.objects.get()
        assert (row.cost, row.unpriced, row.total_tokens) == (Decimal("0.00000123"), 1, 15)

    def test_what_was_counted_stays_when_runs_are_deleted_and_its_flow_can_not_be_deleted(self) -> None:
        run = make_stored_run(make_attempt())
        count_all()
        before = read_statistics()
        run.delete()
        assert read_statistics() == before
        with pytest.raises(ProtectedError):
            run.flow.delete()


@pytest.mark.django_db
class TestModels:
    """Runs by the model that all of their steps ask."""

    def count(self, *models: str | None, model: str | None = None, **fields: Any) -> list[tuple[Any, ...]]:
        steps = [make_step(number, model=name) for number, name in enumerate(models, start=1)]
        version = make_version(make_flow(*steps, make_step(9, compute="{'n': 1}"), model=model))
        make_run(version, status="failed", ended_at=NOON, **fields)
        count_all()
        rows = DailyRuns.objects.filter(version=version)
        return list(rows.order_by("model").values_list("model", "has_several", "runs", "failed"))

    def test_the_step_says_it_else_the_flow_else_the_settings_of_the_run(self) -> None:
        assert self.count("gpt-5", "gpt-5") == [("gpt-5", False, 1, 1)]
        assert self.count("gpt-5", None, model="gpt-5") == [("gpt-5", False, 1, 1)]
        assert self.count(None, model="gpt-4.1") == [("gpt-4.1", False, 1, 1)]
        assert self.count(None, model_settings={"model": "o3"}) == [("o3", False, 1, 1)]

    @pytest.mark.parametrize("settings", [{}, {"model": None}])
    def test_settings_that_name_none_are_nothing_to_stumble_over(self, settings: Any) -> None:
        assert self.count(None, model_settings=settings) == [("", False, 1, 1)]
        assert self.count("gpt-5", None, model_settings=settings) == [("gpt-5", False, 1, 1)]

    def test_runs_that_ask_several_models_are_in_one_row_wherever_they_ended(self) -> None:
        assert self.count("gpt-5", None) == [("", True, 1, 1)]
        assert self.count("gpt-5", "o3", model="gpt-4.1") == [("", True, 1, 1)]

    def test_a_run_of_local_steps_asks_none(self) -> None:
        assert self.count() == [("", False, 1, 1)]

    def test_there_is_a_row_for_each_model(self) -> None:
        make_varied_runs(40)
        count_all(limit=9)
        assert DailyRuns.objects.aggregate(Sum("begun")) == DailySteps.objects.aggregate(Sum("begun"))
        assert set(DailyRuns.objects.values_list("model", "has_several")) == {
            ("gpt-4.1", False),
            ("gpt-5-mini", False),
            ("", True),
        }


@pytest.mark.django_db
class TestSteps:
    def test_attempts_count_by_the_model_that_answered(self) -> None:
        make_stored_run(
            make_attempt(1, 1, "errored"),
            make_attempt(1, 2, "failed", model="gpt-5-mini", usage=make_usage(20)),
            make_attempt(1, 3, model="gpt-5", usage=make_usage(30)),
            make_attempt(2, 1, model="gpt-5", usage=make_usage(40)),
        )
        count_all()
        rows = DailySteps.objects.order_by("step", "model")
        assert list(
            rows.values_list(
                "step", "name", "model", "begun", "passed", "first_passed", "attempts", "retries", "total_tokens"
            )
        ) == [
            (1, "Step 1", "", 0, 0, 0, 1, 0, 0),
            (1, "Step 1", "gpt-5", 0, 1, 0, 1, 1, 30),
            (1, "Step 1", "gpt-5-mini", 1, 0, 0, 1, 0, 20),
            (2, "Step 2", "gpt-5", 1, 1, 1, 1, 0, 40),
        ]


def raise_issue(*, audit: str = "Hex format", code: str = "hex_format", severity: str = "critical") -> dict[str, Any]:
    return {"issues": (make_issue(severity, code=code, audit=audit),)}


@pytest.mark.django_db
class TestAudits:
    """How often an audit fires, how often the next attempt mends it, and what that costs."""

    def count(self, *attempts: Attempt, **about: Any) -> tuple[int, int, int, int]:
        make_stored_run(*attempts, status="failed")
        count_all()
        names = ("fired", "retried", "fixed", "retry_tokens")
        sums = DailyAudits.objects.filter(**about).aggregate(**{name: Sum(name) for name in names})
        return sums["fired"], sums["retried"], sums["fixed"], sums["retry_tokens"]

    def test_an_issue_that_the_next_attempt_mends_is_fixed_at_the_price_of_that_attempt(self) -> None:
        attempts = (
            make_attempt(1, 1, "failed", usage=make_usage(10), **raise_issue()),
            make_attempt(1, 2, usage=make_usage(25, cost=Decimal("0.5"))),
        )
        assert self.count(*attempts) == (1, 1, 1, 25)
        assert DailyAudits.objects.get().retry_cost == Decimal("0.5")

    def test_one_that_persists_is_retried_and_not_fixed_and_the_last_attempt_is_not_retried(self) -> None:
        attempts = [make_attempt(1, number, "failed", usage=make_usage(10), **raise_issue()) for number in (1, 2, 3)]
        assert self.count(*attempts) == (3, 2, 0, 20)

    def test_an_attempt_counts_once_however_many_issues_the_audit_raised(self) -> None:
        issues = (*raise_issue()["issues"], *raise_issue(code="other", severity="low")["issues"])
        assert self.count(make_attempt(1, 1, "failed", issues=issues)) == (1, 0, 0, 0)

    @pytest.mark.parametrize("outcome", ["invalid", "errored", "cancelled", "interrupted"])
    def test_attempts_that_the_audit_did_not_look_at_are_passed_over_and_cost_what_they_cost(
        self, outcome: str
    ) -> None:
        attempts = (
            make_attempt(1, 1, "failed", **raise_issue()),
            make_attempt(1, 2, outcome, usage=make_usage(9)),
            make_attempt(1, 3, usage=make_usage(12)),
        )
        assert self.count(*attempts) == (1, 1, 1, 21)

    @pytest.mark.parametrize("outcome", ["invalid", "errored", "cancelled", "interrupted"])
    def test_what_was_not_looked_for_again_is_neither_fixed_nor_found_again(self, outcome: str) -> None:
        attempts = (make_attempt(1, 1, "failed", **raise_issue()), make_attempt(1, 2, outcome, usage=make_usage(9)))
        assert self.count(*attempts) == (1, 0, 0, 0)

    def test_an_audit_that_could_not_be_evaluated_has_not_looked(self) -> None:
        broken = raise_issue(code="audit_error")
        attempts = (
            make_attempt(1, 1, "failed", **raise_issue()),
            make_attempt(1, 2, "failed", usage=make_usage(9), **broken),
            make_attempt(1, 3, usage=make_usage(12)),
        )
        assert self.count(*attempts) == (2, 2, 2, 33)

    def test_an_attempt_that_passed_with_a_low_issue_fired_and_is_not_retried(self) -> None:
        attempts = (make_attempt(1, 1, **raise_issue(severity="low")), make_attempt(2, 1, usage=make_usage(12)))
        assert self.count(*attempts) == (1, 0, 0, 0)

    def test_what_toolflow_itself_finds_counts_by_its_code(self) -> None:
        mismatch = raise_issue(audit="", code="schema_mismatch")
        attempts = (
            make_attempt(1, 1, "invalid", **mismatch),
            make_attempt(1, 2, "invalid", usage=make_usage(5), **raise_issue(audit="", code="refusal")),
            make_attempt(1, 3, usage=make_usage(7)),
        )
        # A refusal is nothing that could be held against the schema.
        assert self.count(*attempts, audit="", code="schema_mismatch") == (1, 1, 1, 12)
        assert self.count(*attempts, audit="", code="refusal") == (2, 2, 2, 14)

    def test_an_output_that_fails_a_later_check_has_got_past_the_one_before(self) -> None:
        attempts = (
            make_attempt(1, 1, "invalid", **raise_issue(audit="", code="schema_mismatch")),
            make_attempt(1, 2, "invalid", usage=make_usage(5), **raise_issue(audit="", code="type_mismatch")),
        )
        assert self.count(*attempts, audit="", code="schema_mismatch") == (1, 1, 1, 5)


@pytest.mark.django_db
class TestIssues:
    def test_issues_count_each_time_and_their_runs_once(self) -> None:
        run = [make_attempt(1, number, "failed", **raise_issue()) for number in (1, 2)]
        make_stored_run(*run, status="failed")
        make_stored_run(*run, make_attempt(1, 3, "failed", **raise_issue(severity="high")), status="failed")
        count_all()
        rows = DailyIssues.objects.order_by("severity").values_list("audit", "code", "severity")
        counted = rows.annotate(issues_=Sum("issues"), runs_=Sum("runs"))
        assert list(counted) == [
            ("Hex format", "hex_format", "critical", 4, 2),
            ("Hex format", "hex_format", "high", 1, 1),
        ]
