"""What a dry run and ``storage`` say is due is what goes."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Max
from django.utils import timezone

from runs.models import Attempt, Run
from tests.runs.builders import make_version
from tests.runs.retention.aged_runs import NOW, keep, store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


@pytest.fixture
def runs() -> list[Run]:
    """Of two flows: some are due as a whole, some lose their outputs, some stay."""
    runs = store_aged_runs(40)
    since = (timezone.now() - NOW).days
    for flow in {run.flow for run in runs}:
        keep(flow, days=since + 20, outputs_days=since + 4)
    # Statistics don't know it yet: too young to be deleted uncounted, too old to keep its outputs.
    end = Run.objects.filter(ended_at__lt=NOW - timedelta(days=22)).aggregate(end=Max("ended_at"))["end"]
    Run.objects.filter(ended_at=end).update(is_counted=False)
    return runs


def read_sum(text: str, words: str) -> tuple[int, int]:
    """Runs and attempts of all lines with these words."""
    found = re.findall(rf": ([\d,]+) runs that[^\n]* {words}, ([\d,]+) attempts", text)
    return sum(int(runs.replace(",", "")) for runs, _ in found), sum(int(count.replace(",", "")) for _, count in found)


def test_dry_run_and_storage_count_each_run_once(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    attempts = Attempt.objects.count()
    call_command("purge_history", "--dry-run")
    dry = capsys.readouterr().out
    call_command("storage", "--json")
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert Run.objects.filter(outputs_removed_at=None).count() == len(runs)
    call_command("purge_history")
    deleted = len(runs) - Run.objects.count(), attempts - Attempt.objects.count()
    emptied = Run.objects.exclude(outputs_removed_at=None)
    assert read_sum(dry, "would be deleted") == deleted > (0, 0)
    lost = emptied.count(), Attempt.objects.filter(step__run__in=emptied).count()
    assert read_sum(dry, "would lose their outputs") == lost > (0, 0)
    assert (sum(flow["runs_due"] for flow in flows), sum(flow["outputs_due"] for flow in flows)) == (
        deleted[0],
        lost[0],
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["purge_history", "--outputs"], "--outputs needs --before"),
        (["purge_history", "--before", "2999-01-01"], "lies in the future"),
        (["purge_history", "--flow", "unknown"], "unknown"),
        (["storage", "--keep-days", "1", "--keep-outputs-days", "2"], "Outputs can’t be kept longer"),
    ],
)
def test_options_that_are_not_valid_are_refused(options: list[str], problem: str) -> None:
    make_version()
    with pytest.raises(CommandError, match=problem):
        call_command(*options)


@pytest.mark.parametrize("only_outputs", [False, True])
def test_before_holds_whatever_policies_say(only_outputs: bool) -> None:
    runs = store_aged_runs(8)
    flow = runs[0].flow
    keep(flow, days=0)
    call_command("purge_history", *["--outputs"][: int(only_outputs)], flow=flow.name, before=NOW.date())
    kept = Run.objects.filter(outputs_removed_at=None)
    assert {run.flow_id for run in runs} - {run.flow_id for run in kept} == {flow.pk}
    assert Run.objects.count() == (len(runs) if only_outputs else kept.count())


def test_storage_measures_tables_and_flows(capsys: pytest.CaptureFixture[str]) -> None:
    runs = store_aged_runs(12)
    call_command("storage", "--json", "--keep-days", "1")
    document = json.loads(capsys.readouterr().out)
    assert document["total"] > 0 and "runs_attempt" in {table["name"] for table in document["tables"]}
    assert sum(flow["runs"] for flow in document["flows"]) == len(runs)
    assert sum(flow["runs_due"] for flow in document["flows"]) == len(runs)
    for flow in document["flows"]:
        assert flow["run_bytes"] == sum(flow[part] for part in ("inputs", "outputs", "requests", "issues")) > 0
        assert flow["freed"] == flow["runs_due"] * flow["run_bytes"]
    call_command("storage")
    assert "runs for ever, outputs for ever" in capsys.readouterr().out
