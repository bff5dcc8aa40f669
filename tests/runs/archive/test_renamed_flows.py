"""Files of history and flows that were renamed: before the file was written, or after."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from flows.models import Flow, FlowVersion
from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from runs.models import Run
from runs.retention.policy import Part
from runs.tally import tally_ended_runs
from tests.engine.builders import make_flow, make_step
from tests.runs.archive.archives import forge, forget_everything, purge_all, read_documents
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics
from tests.runs.retention.aged_runs import NOW, keep

pytestmark = pytest.mark.django_db

LONG_AGO = NOW - timedelta(days=1)


def rename_flows() -> None:
    for flow in Flow.objects.all():
        flow.name = f"{flow.name}-new"
        flow.save()


class TestRenamedFlows:
    def test_the_archive_of_a_renamed_flow_is_put_back(self, runs: list[Run], tmp_path: Path) -> None:
        rename_flows()
        before, path = read_documents(runs), tmp_path / "history.jsonl.gz"
        write_archive(path, run_ids=[run.pk for run in runs])
        purge_all(runs)
        assert (restore_archive(path).runs, read_documents(runs)) == (len(runs), before)

    def test_another_installation_gets_it_under_its_last_name(self, runs: list[Run], tmp_path: Path) -> None:
        rename_flows()
        names, path = set(Flow.objects.values_list("name", flat=True)), tmp_path / "history.jsonl.gz"
        write_archive(path, run_ids=[run.pk for run in runs])
        forget_everything(runs)
        assert restore_archive(path).runs == len(runs)
        assert set(Flow.objects.values_list("name", flat=True)) == names

    def test_what_was_archived_before_comes_back_to_the_same_flow_and_counts_once(
        self, runs: list[Run], archive: Path
    ) -> None:
        flows, statistics = list(Flow.objects.values_list("pk", flat=True)), read_statistics()
        rename_flows()
        purge_all(list(Run.objects.all()))
        restored = restore_archive(archive)
        assert (restored.runs, restored.counted) == (len(runs), 0)
        assert list(Flow.objects.values_list("pk", flat=True)) == flows
        assert read_statistics() == statistics

    def test_outputs_that_were_archived_before_come_back(self, runs: list[Run], archive: Path) -> None:
        rename_flows()
        runs = list(Run.objects.order_by("ended_at"))
        before = read_documents(runs)
        purge_all(runs, Part.OUTPUTS)
        restored = restore_archive(archive)
        assert (restored.runs, restored.taken, read_documents(runs)) == (len(runs), [], before)

    def test_a_new_flow_of_the_old_name_is_another_one(self, runs: list[Run], archive: Path) -> None:
        old = runs[0].flow
        name = old.name
        rename_flows()
        other = Flow.objects.create(name=name, title="Another flow")
        purge_all(list(Run.objects.all()))
        assert restore_archive(archive).counted == 0
        assert not other.versions.exists()
        assert Run.objects.filter(flow=old).exists()

    def test_later_versions_join_the_flow_that_is_known_here_by_an_earlier_one(self, tmp_path: Path) -> None:
        make_flow_of_two_versions()
        first = Run.objects.order_by("pk")[0]
        early, late = tmp_path / "early.jsonl.gz", tmp_path / "late.jsonl.gz"
        write_archive(early, run_ids=[first.pk])
        rename_flows()
        write_archive(late, run_ids=list(Run.objects.values_list("pk", flat=True)))
        forge(late, lambda lines: lines.insert(1, lines.pop(3)))  # The newer version stands first.
        forget_everything(list(Run.objects.all()))
        assert restore_archive(early).runs == 1
        restored = restore_archive(late)
        assert (restored.runs, restored.present, Flow.objects.count()) == (1, 1, 1)
        assert sorted(FlowVersion.objects.values_list("number", flat=True)) == [1, 2]

    def test_the_policy_of_the_renamed_flow_is_the_one_that_is_warned_of(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rename_flows()
        flow = Flow.objects.get(pk=runs[0].flow_id)
        keep(flow, days=30)
        purge_all(list(Run.objects.all()))
        with pytest.raises(CommandError, match="Nothing was restored"):
            call_command("restore_archive", str(archive))
        assert f"of “{flow.name}” (runs 30 days, outputs for ever)" in capsys.readouterr().err


def make_flow_of_two_versions() -> None:
    """Two runs that ended long ago, each of a version of its own."""
    for title in ("Tea", "Coffee"):
        version = make_version(make_flow(make_step(1)).model_copy(update={"title": title}))
        make_run(version, status="succeeded", created_at=LONG_AGO, ended_at=LONG_AGO)
    while tally_ended_runs():
        pass
