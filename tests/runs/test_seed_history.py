"""Invented history: the size that is asked for, the same each time, and as consistent as real history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from flows.models import Flow
from runs.models import Attempt, Issue, Run
from runs.seeding import seed_history, storing
from tests.runs.recounting import read_statistics, recount

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def describe(runs: Iterable[Run]) -> list[Any]:
    return [
        (run.flow.name, run.version.number, run.status, run.input, run.total_tokens, run.cost, run.started_at)
        for run in runs
    ]


class TestSeededHistory:
    def test_there_are_as_many_runs_as_asked_for_with_about_four_attempts_each(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(storing, "BATCH_SIZE", 7)
        seed_history(runs=60, until=NOON)
        assert Run.objects.count() == 60
        assert 180 < Attempt.objects.count() < 320
        assert {*Run.objects.values_list("status", flat=True)} >= {"succeeded", "failed"}
        assert all(run.has_ended and run.is_counted and run.created_at < NOON for run in Run.objects.all())

    def test_it_has_interruptions_retries_and_issues(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storing, "COURSES", 24)
        seed_history(runs=200, until=NOON)
        interrupted = Run.objects.filter(steps__attempts__outcome="interrupted").distinct()
        assert 0 < interrupted.count() < 40
        for run in interrupted:
            outcomes = list(Attempt.objects.filter(step__run=run).values_list("step__index", "outcome"))
            counted = [index for index, outcome in outcomes if outcome in ("passed", "failed", "invalid")]
            assert run.retry_count == len(counted) - len({*counted})
        assert Run.objects.filter(retry_count__gt=1).exists()
        assert Issue.objects.exists()

    def test_what_is_kept_of_it_is_what_a_recomputation_finds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storing, "COURSES", 12)
        seed_history(runs=80, until=NOON)
        assert Attempt.objects.filter(outcome="interrupted").exists()
        assert read_statistics() == recount(Run.objects.all())

    def test_the_same_seed_gives_the_same_runs_and_another_one_others(self) -> None:
        for seed in (1, 1, 2):
            seed_history(runs=20, until=NOON, seed=seed)
        found = describe(Run.objects.select_related("flow", "version").order_by("pk"))
        assert found[:20] == found[20:40]
        assert found[:20] != found[40:]

    def test_other_flows_of_the_same_name_are_left_alone(self) -> None:
        Flow.objects.create(name="colour-theme", title="Mine")
        seed_history(runs=5, until=NOON)
        assert all(run.flow.name.startswith("seeded-") for run in Run.objects.select_related("flow"))
        assert Flow.objects.get(name="colour-theme").versions.count() == 0


def test_the_command_stores_what_is_asked_for_and_refuses_less_than_one() -> None:
    with pytest.raises(CommandError):
        call_command("seed_history", "--runs=0")
    call_command("seed_history", runs=12, stdout=StringIO())
    assert Run.objects.count() == 12
