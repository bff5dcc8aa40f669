"""``manage.py rebuild_statistics``: statistics made anew from stored runs, beside workers that go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.db.models.functions import Now

from flows.models import Flow
from runs.locks import STATISTICS, acquire
from runs.management.commands import rebuild_statistics
from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps, Lock, Run
from runs.rollup import count_ended_runs
from runs.statistics import rebuilding
from runs.statistics.rebuilding import LEASE, LeaseLostError, rebuild_flow
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics, recount
from tests.runs.varied_runs import MIDNIGHT, make_varied_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

DAILY = (DailyRuns, DailySteps, DailyAudits, DailyIssues)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "BATCH", 7)
    monkeypatch.setattr(rebuild_statistics, "PROGRESS", 14)


def rebuild(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines that the command prints."""
    call_command("rebuild_statistics", *arguments)
    return capsys.readouterr().out.splitlines()


def spoil() -> None:
    """Make rows wrong, missing and superfluous in each table."""
    for model in DAILY:
        first, second = model.objects.order_by("flow", "pk")[:2]
        second.delete()
        first.pk, first.day = None, first.day - timedelta(days=30)
        first.save()
    DailyRuns.objects.update(runs=77, cost=5)


class TestRebuilding:
    def test_whatever_is_wrong_comes_to_what_the_runs_say(self, capsys: pytest.CaptureFixture[str]) -> None:
        runs = make_varied_runs(40)
        count_ended_runs()
        spoil()
        lines = rebuild(capsys)
        assert read_statistics() == recount(runs)
        assert any(" 4 added" in line and " 4 removed" in line for line in lines)
        assert "example: 14 runs counted so far." in lines

    def test_what_is_right_is_left_as_it_is(self, capsys: pytest.CaptureFixture[str]) -> None:
        make_varied_runs(30)
        count_ended_runs()
        keys = {model: set(model.objects.values_list("pk", flat=True)) for model in DAILY}
        lines = rebuild(capsys)
        assert all("rows were right" in line for line in lines if "so far" not in line)
        assert {model: set(model.objects.values_list("pk", flat=True)) for model in DAILY} == keys

    def test_it_makes_all_rows_where_there_are_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        runs = make_varied_runs(30)
        count_ended_runs()
        for model in DAILY:
            model.objects.all().delete()
        rebuild(capsys)
        assert read_statistics() == recount(runs)

    def test_another_flow_is_left_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        make_varied_runs(20)
        count_ended_runs()
        DailyRuns.objects.update(runs=77)
        (*_, line) = rebuild(capsys, "--flow", "other")
        assert line.startswith("other: ")
        assert not DailyRuns.objects.filter(flow__name="other", runs=77).exists()
        assert not DailyRuns.objects.filter(flow__name="example").exclude(runs=77).exists()

    def test_runs_that_are_not_counted_yet_are_counted_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        runs = make_varied_runs(30)
        count_ended_runs(limit=11)
        rebuild(capsys)
        while count_ended_runs():
            pass
        assert read_statistics() == recount(runs)

    def test_days_before_since_keep_what_deleted_runs_had_counted(self, capsys: pytest.CaptureFixture[str]) -> None:
        runs = make_varied_runs(40)
        count_ended_runs()
        before = read_statistics()
        Run.objects.filter(ended_at__lt=MIDNIGHT + timedelta(days=1)).delete()
        spoiled = DailyRuns.objects.filter(day=MIDNIGHT.date() + timedelta(days=2))
        assert spoiled.update(cost=1_000)
        rebuild(capsys, "--since", "2026-11-22")
        assert read_statistics() == before
        rebuild(capsys)
        assert read_statistics() == recount(Run.objects.filter(pk__in=[run.pk for run in runs]))
        assert read_statistics() != before


class TestRefusals:
    def test_an_unknown_flow_is_named(self) -> None:
        with pytest.raises(CommandError, match="There is no flow “nope”"):
            call_command("rebuild_statistics", "--flow", "nope")

    def test_a_day_is_written_with_year_month_and_day(self) -> None:
        with pytest.raises(CommandError, match="“yesterday” is no day: write it as 2026-11-21"):
            call_command("rebuild_statistics", "--since", "yesterday")

    def test_two_at_a_time_are_refused(self) -> None:
        make_run()
        assert acquire(STATISTICS, LEASE)
        with pytest.raises(CommandError, match="being rebuilt already"):
            call_command("rebuild_statistics")


class TestBesideWorkers:
    """While it counts, workers go on with everything but counting."""

    def end_a_run(self) -> None:
        make_run(make_version(), status="succeeded", ended_at=NOON)

    def during(self, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
        """Do something after the first batch of each flow was read."""
        read = rebuilding.read_ended_runs

        def read_and_act(run_ids: Any) -> Any:
            runs = read(run_ids)
            action()
            return runs

        monkeypatch.setattr(rebuilding, "read_ended_runs", read_and_act)

    def test_runs_that_end_meanwhile_are_counted_afterwards_and_once(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        counted: list[int] = []

        def end_and_count() -> None:
            self.end_a_run()
            counted.append(count_ended_runs())

        make_varied_runs(20)
        count_ended_runs()
        self.during(monkeypatch, end_and_count)
        rebuild(capsys)
        assert set(counted) == {0}
        assert count_ended_runs() == len(counted)
        assert read_statistics() == recount(Run.objects.all())

    def test_one_that_was_broken_off_holds_up_nobody_for_long(self) -> None:
        self.end_a_run()
        assert acquire(STATISTICS, LEASE)
        assert count_ended_runs() == 0
        Lock.objects.update(held_until=Now() - timedelta(seconds=1))
        assert count_ended_runs() == 1
        assert acquire(STATISTICS, LEASE)

    def test_one_that_takes_long_gives_signs_of_life(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        left: list[timedelta] = []

        def note_and_shorten() -> None:
            (lock,) = Lock.objects.annotate(now=Now())
            left.append(lock.held_until - lock.now)
            Lock.objects.update(held_until=Now() + timedelta(seconds=20))

        make_varied_runs(30)
        count_ended_runs()
        self.during(monkeypatch, note_and_shorten)
        rebuild(capsys)
        assert len(left) > 3
        assert min(left) > timedelta(seconds=30)

    def test_one_that_slept_for_too_long_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make_varied_runs(20)
        count_ended_runs()
        DailyRuns.objects.update(runs=77)
        token = acquire(STATISTICS, LEASE)
        assert token is not None
        self.during(monkeypatch, lambda: Lock.objects.update(held_until=Now() - timedelta(seconds=1)))
        with pytest.raises(LeaseLostError):
            rebuild_flow(Flow.objects.get(name="example"), token=token)
        assert not DailyRuns.objects.exclude(runs=77).exists()

    def test_the_command_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make_varied_runs(20)
        count_ended_runs()
        self.during(monkeypatch, lambda: Lock.objects.update(token=F("token") + 1))
        with pytest.raises(CommandError, match=r"example: .* Nothing was changed; try again"):
            call_command("rebuild_statistics")
