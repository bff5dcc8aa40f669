"""What is counted of runs that have ended, by flow, version and day, and the percentiles of it."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import ProtectedError, Sum
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import Attempt, Outcome
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec
from runs.locks import STATISTICS, acquire, release
from runs.models import Attempt as AttemptRow
from runs.models import DailyAudits, DailyRuns, DailySteps, Run
from runs.rollup import count_ended_runs
from runs.statistics.rebuild import LEASE
from runs.statistics.sums import (
    MIN_SECONDS,
    RunSums,
    find_bucket,
    find_percentile,
)
from tests.engine.builders import NOON, make_attempt, make_flow, make_issue, make_step, make_usage
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.recounting import read_statistics, recount
from tests.runs.varied_runs import make_varied_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

LONG_ENOUGH = AuditSpec(name="Long enough", rule="size(output.text) >= 10", message="'Too short.'")
GOOD, SHORT = {"text": "Tea is a warm drink."}, {"text": "Tea."}


def count_all(*, limit: int = 100) -> None:
    while count_ended_runs(limit=limit):
        pass


@pytest.mark.django_db(transaction=True)
def test_runs_that_were_executed_are_counted_as_their_history_says(provider: ModelServer) -> None:
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
    # A worker dies in the last attempt of a run, and another goes on with it.
    last = AttemptRow.objects.filter(step__run=runs[0]).latest("step__index", "number")
    last.usage.delete()
    last.end_without_output(Outcome.INTERRUPTED)
    Run.objects.filter(pk=runs[0].pk).update(status="queued", ended_at=None)
    drain()
    Run.objects.filter(pk=runs[1].pk).update(ended_at=NOON, started_at=NOON - timedelta(seconds=90))
    release(STATISTICS, token)
    count_all(limit=3)
    ended = Run.objects.all()
    assert {run.status for run in ended} == {"succeeded", "failed", "cancelled"}
    assert read_statistics() == recount(ended)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_runs_counted_in_any_batches_add_up_to_what_their_rows_say(seed: int) -> None:
    runs = make_varied_runs(40, seed=seed)
    count_all(limit=7)
    assert read_statistics() == recount(runs)
    assert DailyRuns.objects.aggregate(Sum("begun")) == DailySteps.objects.aggregate(Sum("begun"))


def test_the_number_of_statements_is_bounded() -> None:
    make_varied_runs(60)
    with CaptureQueriesContext(connection) as captured:
        assert count_ended_runs() == 60
    assert len(captured) < 40


class TestRuns:
    def test_a_run_counts_on_the_day_of_its_end_in_utc(self, settings: Any) -> None:
        settings.TIME_ZONE = "Asia/Tokyo"
        midnight = NOON.replace(hour=0)
        version = make_version()
        for ended_at in (midnight - timedelta(microseconds=1), midnight, midnight + timedelta(hours=23)):
            make_run(version, status="succeeded", ended_at=ended_at)
        count_all()
        counted = DailyRuns.objects.order_by("day").values_list("day", "runs")
        assert list(counted) == [(date(2026, 11, 20), 1), (date(2026, 11, 21), 2)]

    def test_counts_stay_when_runs_are_deleted_and_their_flow_can_not_be_deleted(self) -> None:
        run = make_stored_run(make_attempt())
        count_all()
        before = read_statistics()
        run.delete()
        assert read_statistics() == before
        with pytest.raises(ProtectedError):
            run.flow.delete()


@pytest.mark.parametrize(
    ("models", "flow_model", "settings", "expected"),
    [
        (["gpt-5", "gpt-5"], None, None, ("gpt-5", False)),
        (["gpt-5", None], "gpt-5", None, ("gpt-5", False)),
        ([None], "gpt-4.1", None, ("gpt-4.1", False)),
        ([None], None, {"model": "o3"}, ("o3", False)),
        (["gpt-5", None], None, {"model": None}, ("gpt-5", False)),
        (["gpt-5", None], None, None, ("", True)),
        (["gpt-5", "o3"], "gpt-4.1", None, ("", True)),
        ([], None, None, ("", False)),
    ],
)
def test_a_run_counts_for_the_model_that_all_its_steps_ask(
    models: list[str | None], flow_model: str | None, settings: dict[str, Any] | None, expected: tuple[str, bool]
) -> None:
    steps = [make_step(number, model=name) for number, name in enumerate(models, start=1)]
    version = make_version(make_flow(*steps, make_step(9, compute="{'n': 1}"), model=flow_model))
    make_run(version, status="failed", ended_at=NOON, **({} if settings is None else {"model_settings": settings}))
    count_all()
    assert list(DailyRuns.objects.values_list("model", "has_several", "failed")) == [(*expected, 1)]


def test_the_last_model_of_a_step_is_asked_too() -> None:
    step = make_step(1, model="gpt-5-mini", max_retries=1, last_model="gpt-5")
    make_run(make_version(make_flow(step)), status="failed", ended_at=NOON)
    count_all()
    assert list(DailyRuns.objects.values_list("model", "has_several")) == [("", True)]


def raise_issue(*, audit: str = "Hex format", code: str = "hex_format", severity: str = "critical") -> dict[str, Any]:
    return {"issues": (make_issue(severity, code=code, audit=audit),)}


FIRED, LOW = raise_issue(), raise_issue(severity="low")
TWICE = {"issues": (*FIRED["issues"], *raise_issue(code="other", severity="low")["issues"])}
BROKEN = raise_issue(code="audit_error")
SCHEMA, TYPE, REFUSAL = (raise_issue(audit="", code=code) for code in ("schema_mismatch", "type_mismatch", "refusal"))
NOTHING: dict[str, Any] = {}


UNCHECKED = ["invalid", "errored", "cancelled", "interrupted"]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        pytest.param([("failed", 10, FIRED), ("passed", 25, NOTHING)], (1, 1, 1, 25), id="fixed"),
        pytest.param([("failed", 10, FIRED)] * 3, (3, 2, 0, 20), id="persists, and the last is not retried"),
        pytest.param([("failed", 10, TWICE)], (1, 0, 0, 0), id="two issues in one attempt count once"),
        pytest.param([("passed", 10, LOW)], (1, 0, 0, 0), id="passed with a low issue"),
        pytest.param(
            [("failed", 10, FIRED), ("failed", 9, BROKEN), ("passed", 12, NOTHING)],
            (2, 2, 2, 33),
            id="an audit that could not be evaluated has checked nothing",
        ),
        *(
            pytest.param(
                [("failed", 10, FIRED), (outcome, 9, NOTHING), ("passed", 12, NOTHING)],
                (1, 1, 1, 21),
                id=f"{outcome} attempts are passed over and cost what they cost",
            )
            for outcome in UNCHECKED
        ),
        *(
            pytest.param(
                [("failed", 10, FIRED), (outcome, 9, NOTHING)],
                (1, 0, 0, 0),
                id=f"after a last {outcome} attempt nothing is known",
            )
            for outcome in UNCHECKED
        ),
    ],
)
def test_an_audit_counts_what_fired_what_the_next_attempt_fixed_and_at_what_price(
    attempts: list[tuple[str, int, dict[str, Any]]], expected: tuple[int, ...]
) -> None:
    assert count_audits(attempts) == expected


@pytest.mark.parametrize(
    ("attempts", "code", "expected"),
    [
        # A refusal is nothing that could be checked against the schema.
        ([("invalid", 1, SCHEMA), ("invalid", 5, REFUSAL), ("passed", 7, NOTHING)], "schema_mismatch", (1, 1, 1, 12)),
        ([("invalid", 1, SCHEMA), ("invalid", 5, REFUSAL), ("passed", 7, NOTHING)], "refusal", (1, 1, 1, 7)),
        # An output that fails a later check has passed the one before.
        ([("invalid", 1, SCHEMA), ("invalid", 5, TYPE)], "schema_mismatch", (1, 1, 1, 5)),
    ],
)
def test_issues_of_toolflow_itself_count_by_their_code(
    attempts: list[tuple[str, int, dict[str, Any]]], code: str, expected: tuple[int, ...]
) -> None:
    assert count_audits(attempts, audit="", code=code) == expected


def count_audits(attempts: list[tuple[str, int, dict[str, Any]]], **about: Any) -> tuple[int, ...]:
    """Fired, retried, fixed and tokens of retries, for attempts of one step as outcome, tokens and issues."""
    history: list[Attempt] = [
        make_attempt(1, number, outcome, usage=make_usage(tokens), **issues)
        for number, (outcome, tokens, issues) in enumerate(attempts, start=1)
    ]
    make_stored_run(*history, status="failed")
    count_all()
    sums = DailyAudits.objects.filter(**about).aggregate(*map(Sum, ("fired", "retried", "fixed", "retry_tokens")))
    return tuple(sums.values())


DURATIONS = st.floats(min_value=MIN_SECONDS, max_value=10 * 365 * 86_400)


def count(durations: list[float]) -> dict[str, int]:
    return dict(Counter(str(find_bucket(duration)) for duration in durations))


@given(st.lists(st.lists(DURATIONS), min_size=1), st.sampled_from([1, 50, 95, 100]))
def test_percentiles_over_days_are_within_two_and_a_half_per_cent(days: list[list[float]], percent: int) -> None:
    sums = RunSums.join([RunSums(durations=count(durations)) for durations in days])
    found = find_percentile(sums.durations, percent)
    durations = sorted(duration for day in days for duration in day)
    if not durations:
        assert found is None
    else:
        exact = durations[max(1, math.ceil(len(durations) * percent / 100)) - 1]
        assert found == pytest.approx(exact, rel=0.025)
