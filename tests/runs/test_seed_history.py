"""Invented history: the size that is asked for, the same each time, and as consistent as real history."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from flows.models import Flow
from runs.models import Attempt, Issue, Run
from runs.seeding import seed_history, storing
from tests.runs.recounting import read_statistics, recount

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _few_courses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a run of the engine."""
    monkeypatch.setattr(storing, "COURSES", 6)


def test_it_has_what_real_history_has_and_its_statistics_are_what_a_recount_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storing, "BATCH_SIZE", 7)
    monkeypatch.setattr(storing, "COURSES", 60)
    seed_history(runs=80, until=NOON)
    assert 240 < Attempt.objects.count() < 430
    assert {*Run.objects.values_list("status", flat=True)} >= {"succeeded", "failed"}
    assert all(run.has_ended and run.is_counted and run.created_at < NOON for run in Run.objects.all())
    assert Attempt.objects.filter(outcome="interrupted").exists() and Issue.objects.exists()
    assert read_statistics() == recount(Run.objects.all())
    for run in Run.objects.filter(steps__attempts__outcome="interrupted").distinct():
        outcomes = Attempt.objects.filter(step__run=run).values_list("step__index", "outcome")
        tries = [index for index, outcome in outcomes if outcome in ("passed", "failed", "invalid")]
        assert run.retry_count == len(tries) - len({*tries})


def test_the_same_seed_gives_the_same_runs_and_another_one_others() -> None:
    for seed in (1, 1, 2):
        seed_history(runs=20, until=NOON, seed=seed)
    fields = ("flow__name", "version__number", "status", "input", "total_tokens", "cost", "started_at")
    found = list(Run.objects.order_by("pk").values_list(*fields))
    assert found[:20] == found[20:40]
    assert found[:20] != found[40:]


def test_flows_of_users_are_left_alone() -> None:
    Flow.objects.create(name="colour-theme", title="Mine")
    call_command("seed_history", runs=12, stdout=StringIO())
    assert Run.objects.filter(flow__name__startswith="seeded-").count() == Run.objects.count() == 12
    assert not Flow.objects.get(name="colour-theme").versions.exists()


def test_a_count_that_is_not_valid_is_refused() -> None:
    with pytest.raises(CommandError):
        call_command("seed_history", "--runs=0")
