"""Invented history: the size that is asked for, the same each time, and as consistent as real history."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from flows.engine.backtest import backtest_run
from flows.engine.backtest_result import BacktestKind
from flows.engine.model_calls import resolve_spec
from flows.engine.spec import ModelSettings
from flows.examples import load_examples
from flows.models import Flow, FlowVersion
from runs.models import Attempt, DailyRuns, Issue, Run
from runs.seeding import SampleError, fetch_sample_flows, remove_samples, seed_history, storing
from runs.seeding.planted import COST, CYCLE, TOKENS
from runs.stored_history import load_history
from tests.runs.recounting import read_statistics, recount

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLANTED = "seeded-order-confirmation"


def test_judged_again_each_run_comes_out_as_it_is_stored() -> None:
    seed_history(runs=40, planted=20, until=NOON, seed=3)
    for run in Run.objects.select_related("version"):
        own = resolve_spec(run.version.flow_spec, ModelSettings(model=run.model_settings["model"]))
        found = asyncio.run(backtest_run(own, own, load_history(run)))
        assert (found.kind, found.ends, found.gone, found.new) == (BacktestKind.SAME, found.ended, (), ()), run.pk
        assert found.ended == run.status
    for attempt in Attempt.objects.filter(sent__isnull=False).select_related("step__run", "sent"):
        assert "{reference}" not in str(attempt.request), "a run's requests have its own words"


@pytest.fixture(autouse=True)
def _few_courses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a run of the engine."""
    monkeypatch.setattr(storing, "COURSES", 3)


def test_it_has_what_real_history_has_and_its_statistics_are_what_a_recount_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storing, "BATCH_SIZE", 50)
    monkeypatch.setattr(storing, "COURSES", 48)
    monkeypatch.setattr(storing, "MIN_COURSES", 24)
    seed_history(runs=160, until=NOON)
    assert 480 < Attempt.objects.count() < 800
    assert {*Run.objects.values_list("status", flat=True)} == {"succeeded", "failed", "errored"}
    assert {*Attempt.objects.values_list("outcome", flat=True)} == {"passed", "failed", "invalid", "errored"}
    assert Issue.objects.filter(attempt__outcome="passed").exists()
    assert Run.objects.filter(end_reason="call_refused").exists()
    assert Run.objects.filter(unpriced_count__gt=0).exists() and Run.objects.exclude(cost=None).exists()
    assert Run.objects.exclude(labels=[]).exists() and Run.objects.values("started_by").distinct().count() == 3
    assert Run.objects.values("version").distinct().count() == 9
    errors = [error["code"] for error in Attempt.objects.exclude(error=None).values_list("error", flat=True)]
    assert {"rate_limited", "server_error"} & {*errors}
    assert all(run.has_ended and run.is_counted and run.created_at < NOON for run in Run.objects.all())
    assert read_statistics() == recount(Run.objects.all())


def test_the_same_seed_gives_the_same_runs_and_another_one_others() -> None:
    for seed in (1, 1, 2):
        seed_history(runs=20, until=NOON, seed=seed)
    fields = ("flow__name", "version__number", "status", "input", "total_tokens", "cost", "started_at")
    found = list(Run.objects.order_by("pk").values_list(*fields))
    assert found[:20] == found[20:40]
    assert found[:20] != found[40:]


def test_planted_runs_are_as_their_module_says() -> None:
    seed_history(runs=0, planted=50, until=NOON)
    cycles = 50 // sum(CYCLE.values())
    courses = Counter(
        (
            run.status,
            tuple(
                (attempt.step, attempt.outcome.value, *(issue.audit for issue in attempt.issues))
                for attempt in load_history(run)
                if attempt.step != 2 and attempt.step
            ),
        )
        for run in Run.objects.select_related("version")
    )
    read, done = (1, "passed"), (3, "passed")
    of_kind = {
        "plain": ("succeeded", (read, done)),
        "unclosed": ("succeeded", (read, (3, "failed", "Closing line"), done)),
        "nameless": ("succeeded", (read, (3, "failed", "Names the customer"), done)),
        "careless": ("succeeded", (read, (3, "failed", "Names the customer", "Closing line"), done)),
        "stuck": ("failed", ((1, "failed", "Pieces of each article"),) * 4),
        "dateless": ("succeeded", (read, (3, "passed", "Mentions the delivery date"))),
    }
    assert courses == {of_kind[kind]: count * cycles for kind, count in CYCLE.items()}
    stuck = Run.objects.filter(status="failed")
    assert all(len({str(attempt.output) for attempt in [*load_history(run)][1:]}) == 1 for run in stuck)
    calls = Attempt.objects.exclude(step__index=2).count()
    assert sum(run.cost or Decimal(0) for run in Run.objects.all()) == COST * calls
    assert sum(Run.objects.values_list("total_tokens", flat=True)) == TOKENS * calls


def test_flows_of_users_are_left_alone() -> None:
    Flow.objects.create(name="colour-theme", title="Mine")
    call_command("seed_history", runs=12, planted=3, stdout=StringIO())
    assert Run.objects.filter(flow__name__startswith="seeded-").count() == Run.objects.count() == 15
    assert not Flow.objects.get(name="colour-theme").versions.exists()


def test_a_flow_of_a_user_with_the_name_of_a_sample_flow_is_never_touched() -> None:
    mine = Flow.objects.create(name=PLANTED, title="Mine")
    with pytest.raises(CommandError):
        call_command("seed_history", runs=0, planted=3, stdout=StringIO())
    remove_samples()
    mine.refresh_from_db()
    assert not mine.versions.exists()


def test_removing_takes_all_that_belongs_to_samples_and_nothing_else() -> None:
    load_examples()
    ada = User.objects.create_user("ada")
    before = [*Flow.objects.values_list("name", flat=True)], FlowVersion.objects.count()
    call_command("seed_history", runs=30, planted=10, stdout=StringIO())
    assert fetch_sample_flows().count() == 4
    call_command("seed_history", remove=True, stdout=StringIO())
    assert ([*Flow.objects.values_list("name", flat=True)], FlowVersion.objects.count()) == before
    assert not Run.objects.exists() and not DailyRuns.objects.exists()
    assert [*User.objects.all()] == [ada]


def test_samples_with_a_run_that_has_not_ended_are_not_removed() -> None:
    seed_history(runs=0, planted=5, until=NOON)
    run = Run.objects.all()[0]
    Run.objects.create(flow=run.flow, version=run.version, input={}, model_settings={}, step_count=3)
    with pytest.raises(SampleError):
        remove_samples()
    assert Run.objects.count() == 6


@pytest.mark.parametrize("options", [{"runs": 0}, {"runs": -1}, {"planted": -1}, {"days": 0}])
def test_a_count_that_is_not_valid_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(CommandError):
        call_command("seed_history", **options)
