"""What a dry run says would go is what goes."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from runs.models import Attempt, Run
from runs.retention import purging
from tests.runs.retention.aged_runs import NOW, keep, store_aged_runs

pytestmark = pytest.mark.django_db


def read_figures(text: str, words: str) -> list[tuple[str, str]]:
    """Runs and attempts of each line that has these words."""
    return [
        (match[1], match[2])
        for line in text.splitlines()
        if words in line and (match := re.search(r": ([\d,]+) runs.*?([\d,]+) attempts", line))
    ]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Of two flows: some that are due as a whole, some that lose their outputs, some that stay; some are large."""
    monkeypatch.setattr(purging, "MOST", 4)
    runs = store_aged_runs(40)
    since = (timezone.now() - NOW).days
    for flow in {run.flow for run in runs}:
        keep(flow, days=since + 20, outputs_days=since + 4)
    # Statistics don't know it yet: too young to go uncounted, too old to keep its outputs.
    uncounted = max((run for run in runs if run.ended_at and run.ended_at < NOW - timedelta(days=22)), key=_find_end)
    Run.objects.filter(pk=uncounted.pk).update(is_counted=False)
    return runs


def _find_end(run: Run) -> float:
    assert run.ended_at is not None
    return run.ended_at.timestamp()


def test_where_runs_and_outputs_have_days_each_run_is_counted_once(
    runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = Attempt.objects.count()
    call_command("purge_history", "--dry-run")
    dry = capsys.readouterr().out
    call_command("purge_history")
    real = capsys.readouterr().out
    for words in ("deleted", "lose their outputs"):
        figures = read_figures(dry, f"would be {words}" if words == "deleted" else f"would {words}")
        assert len(figures) == 2 and ("0", "0") not in figures
        assert figures == read_figures(real, f"are {words}" if words == "deleted" else words)
    assert read_figures(dry, "would") == read_figures(real, "Done in")
    assert len(runs) - Run.objects.count() == _sum(dry, "would be deleted", 0)
    assert attempts - Attempt.objects.count() == _sum(dry, "would be deleted", 1)
    assert Run.objects.exclude(outputs_removed_at=None).count() == _sum(dry, "would lose", 0)


def test_storage_says_the_same(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("purge_history", "--dry-run")
    dry = capsys.readouterr().out
    call_command("storage", "--json")
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert sum(flow["runs_due"] for flow in flows) == _sum(dry, "would be deleted", 0) > 0
    assert sum(flow["outputs_due"] for flow in flows) == _sum(dry, "would lose", 0) > 0


def _sum(text: str, words: str, place: int) -> int:
    return sum(int(figures[place].replace(",", "")) for figures in read_figures(text, words))
