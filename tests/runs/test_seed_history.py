"""Invented history: the size that is asked for, the same each time, and as consistent as real history."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from flows.examples import load_examples
from flows.models import Flow, FlowVersion
from runs.models import Attempt, DailyRuns, Issue, Run
from runs.seeding import SampleError, fetch_sample_flows, remove_samples, seed_history, storing
from tests.runs.recounting import read_statistics, recount

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLANTED = "seeded-order-confirmation"


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
