"""``manage.py rebuild_statistics``: counting stored runs again, beside workers that go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from flows.models import Flow
from runs.locks import STATISTICS, acquire
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps, Lock, Run
from runs.rollup import count_ended_runs
from runs.statistics import rebuild
from runs.statistics.rebuild import LEASE, LeaseLostError, rebuild_flow
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics, recount
from tests.runs.varied_runs import MIDNIGHT, make_varied_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

DAILY = (DailyRuns, DailySteps, DailyAudits, DailyIssues)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "RUN_BATCH_SIZE", 7)


@pytest.fixture
def runs() -> list[Run]:
    """Runs of two flows, all of them counted."""
    runs = make_varied_runs(30)
    count_ended_runs()
    return runs


def spoil() -> None:
    """Make rows wrong, missing and superfluous in each table."""
    for model in DAILY:
        first, second = model.objects.order_by("flow", "pk")[:2]
        second.delete()
        first.pk, first.day = None, first.day - timedelta(days=30)
        first.save()
    DailyRuns.objects.update(runs=77, cost=5)


def delete_rows() -> None:
    for model in DAILY:
        model.objects.all().delete()


@pytest.mark.parametrize("damage", [spoil, delete_rows, None])
def test_whatever_is_wrong_is_corrected_to_what_the_runs_say(
    damage: Callable[[], object] | None, runs: list[Run]
) -> None:
    keys = {model: set(model.objects.values_list("pk", flat=True)) for model in DAILY}
    if damage:
        damage()
    token = acquire(STATISTICS, LEASE)
    assert token is not None
    changed = sum(rebuild_flow(flow, token=token).changed for flow in Flow.objects.all())
    assert read_statistics() == recount(runs)
    assert bool(changed) is bool(damage)
    assert damage or {model: set(model.objects.values_list("pk", flat=True)) for model in DAILY} == keys


def test_days_before_since_keep_their_rows(runs: list[Run]) -> None:
    before = read_statistics()
    Run.objects.filter(ended_at__lt=MIDNIGHT + timedelta(days=1)).delete()
    assert DailyRuns.objects.filter(day=MIDNIGHT.date() + timedelta(days=2)).update(cost=1_000)
    call_command("rebuild_statistics", "--since", "2026-11-22")
    assert read_statistics() == before
    call_command("rebuild_statistics")
    assert read_statistics() == recount(Run.objects.all()) != before


@pytest.mark.parametrize("arguments", [("--flow", "nope"), ("--since", "yesterday"), ()])
def test_bad_arguments_and_a_second_rebuild_are_refused(arguments: tuple[str, ...]) -> None:
    make_run()
    assert acquire(STATISTICS, LEASE)
    with pytest.raises(CommandError):
        call_command("rebuild_statistics", *arguments)


class TestBesideWorkers:
    def during(self, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
        """Do something after each batch was read."""
        load = rebuild.load_ended_runs

        def load_and_act(run_ids: Any) -> Any:
            runs = load(run_ids)
            action()
            return runs

        monkeypatch.setattr(rebuild, "load_ended_runs", load_and_act)

    def test_runs_that_end_meanwhile_are_counted_afterwards_and_once(
        self, runs: list[Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counted: list[int] = []

        def end_and_count() -> None:
            make_run(make_version(), status="succeeded", ended_at=NOON)
            counted.append(count_ended_runs())

        self.during(monkeypatch, end_and_count)
        call_command("rebuild_statistics")
        assert set(counted) == {0}
        assert count_ended_runs() == len(counted)
        assert read_statistics() == recount(Run.objects.all())

    def test_a_rebuild_that_lost_its_lease_changes_nothing(
        self, runs: list[Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        DailyRuns.objects.update(runs=77)
        self.during(monkeypatch, lambda: Lock.objects.update(held_until=Now() - timedelta(seconds=1)))
        with pytest.raises(CommandError) as caught:
            call_command("rebuild_statistics", "--flow", "example")
        assert isinstance(caught.value.__cause__, LeaseLostError)
        assert not DailyRuns.objects.exclude(runs=77).exists()
