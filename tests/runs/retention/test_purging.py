"""What is due is deleted, all else stays, in short transactions and whatever interrupts them."""

from __future__ import annotations

import json
import re
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.models import Max
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.locks import STATISTICS, acquire, release
from runs.models import Attempt, AuditEntry, DailyRuns, Issue, PurgedDay, Run, RunStatus
from runs.retention import purging
from runs.retention.policy import Part, PurgeTask, build_tasks, effective_policy
from runs.retention.purging import Purged, purge
from runs.statistics.rebuild import LEASE, Rebuilt, rebuild_flow
from tests.runs.builders import make_run, make_version
from tests.runs.recounting import read_statistics
from tests.runs.retention.aged_runs import NOW, count_rows, ended_before, keep, read_texts, store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def purge_whole(task: PurgeTask) -> Purged:
    purged = Purged()
    for purged in purge(task):  # noqa: B007  # the last one is the total
        pass
    return purged


def purge_flows_of(runs: list[Run], part: Part = Part.RUNS) -> list[Purged]:
    """Purge all runs of these flows that ended before ``NOW``."""
    flows = {run.flow_id: run.flow for run in runs}
    return [purge_whole(PurgeTask(flow, part, NOW)) for flow in flows.values()]


def follow_policies(runs: list[Run]) -> None:
    for flow in {run.flow_id: run.flow for run in runs}.values():
        flow.refresh_from_db()
        for task in build_tasks(flow, effective_policy(flow), NOW):
            purge_whole(task)


def rebuild(run: Run) -> Rebuilt:
    """Count the runs of a flow again."""
    token = acquire(STATISTICS, LEASE)
    assert token is not None
    rebuilt = rebuild_flow(run.flow, token=token)
    release(STATISTICS, token)
    return rebuilt


def set_batch_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setitem(purging.BATCH_SIZE, connection.vendor, size)


class TestRuns:
    @pytest.mark.parametrize("size", [1, 1_000])
    def test_due_runs_are_deleted_with_all_their_rows(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        set_batch_size(monkeypatch, size)
        runs = store_aged_runs()
        keep(runs[0].flow, days=20)
        mine = [run for run in runs if run.flow == runs[0].flow]
        old = ended_before(mine, 20)
        kept = [run for run in runs if run not in old]
        before = count_rows(kept)
        assert 0 < len(old) < len(mine) < len(runs) and all(count_rows(old).values())
        follow_policies(runs)
        assert set(count_rows(old).values()) == {0} and count_rows(kept) == before

    def test_unfinished_runs_stay_and_uncounted_ones_a_week_longer(self) -> None:
        version = make_version()
        unfinished = make_run(version, created_at=NOW - timedelta(days=400))
        young, _ = (
            make_run(version, status=RunStatus.SUCCEEDED, ended_at=NOW - timedelta(days=days)) for days in (6, 8)
        )
        purge_flows_of([young])
        assert set(Run.objects.all()) == {unfinished, young}

    @pytest.mark.parametrize("part", Part)
    def test_statements_do_not_grow_with_the_runs_of_a_batch(self, monkeypatch: pytest.MonkeyPatch, part: Part) -> None:
        set_batch_size(monkeypatch, 1_000)
        runs = store_aged_runs(30)
        counts, purged = [], []
        for limit in (ended_before(runs, 38)[-1].ended_at, NOW):
            assert limit is not None
            with CaptureQueriesContext(connection) as queries:
                purged.append(purge_whole(PurgeTask(runs[0].flow, part, limit + timedelta(seconds=1))).runs)
            counts.append(len(queries))
        assert 0 < purged[0] < 5 < purged[1] and counts[0] + 3 >= counts[1]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL cuts files while others write")
def test_no_table_that_loses_rows_is_locked_to_cut_its_file() -> None:
    tables = {relation.related_model._meta.db_table for relation in Run._meta.related_objects}
    tables |= {"runs_run", "runs_attempt", "runs_issue", "runs_tokenusage", "runs_webhooktry", "runs_searchdocument"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT main.relname FROM pg_class AS main LEFT JOIN pg_class AS toast ON toast.oid = main.reltoastrelid "
            "WHERE main.relname = ANY(%s) AND 'vacuum_truncate=false' = ANY(main.reloptions) "
            "AND (toast.oid IS NULL OR 'vacuum_truncate=false' = ANY(toast.reloptions))",
            [list(tables)],
        )
        assert {name for (name,) in cursor.fetchall()} == tables


class TestStatistics:
    def test_they_keep_what_deleted_runs_counted_and_rebuilding_leaves_their_days_alone(self) -> None:
        runs = store_aged_runs(30)
        before = read_statistics()
        flow = runs[0].flow
        purge_whole(PurgeTask(flow, Part.RUNS, NOW - timedelta(days=20)))
        assert read_statistics() == before
        ends = [run.ended_at for run in ended_before(runs, 20) if run.flow_id == flow.pk and run.ended_at]
        lacking = {ended_at.astimezone(UTC).date() for ended_at in ends}
        assert {day.day for day in PurgedDay.objects.all()} == lacking
        DailyRuns.objects.filter(flow=flow).exclude(day__in=lacking).update(runs=99)
        assert rebuild(runs[0]).lacking == len(lacking)
        assert read_statistics() == before


class TestOutputs:
    @pytest.mark.parametrize("size", [1, 1_000])
    def test_all_texts_of_due_runs_are_deleted_and_figures_stay(
        self, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        def read_figures() -> list[Any]:
            return [
                *Run.objects.values_list(
                    "pk", "status", "end_reason", "total_tokens", "cost", "attempt_count", "labels"
                ),
                *Attempt.objects.order_by("pk").values_list("outcome", "model", "usage__total", "ended_at"),
                *Issue.objects.order_by("pk").values_list("code", "audit", "severity", "position"),
            ]

        set_batch_size(monkeypatch, size)
        runs = store_aged_runs()
        for run in runs:
            keep(run.flow, outputs_days=20)
        old = ended_before(runs, 20)
        young = [run for run in runs if run not in old]
        texts, figures, rows = read_texts(young), read_figures(), count_rows(runs)
        follow_policies(runs)
        assert read_figures() == figures and count_rows(runs) == rows | {"words": len(young)}
        assert read_texts(young) == texts
        empty = [({}, {}), ("", None, {}, [], {}), (None, None, None, None, "", None), (None, None, None, None, "", "")]
        assert [text for text in read_texts(old) if text not in empty] == []
        assert set(Run.objects.filter(outputs_removed_at=None)) == set(young)
        # In the end they go as the others do.
        purge_flows_of(runs)
        assert not Run.objects.exists()

    def test_pages_and_api_say_so_and_run_it_again_for_no_user(self, admin_client: Client) -> None:
        run = store_aged_runs(8)[0]
        purge_flows_of([run], Part.OUTPUTS)
        other = Run.objects.filter(flow=run.flow).exclude(pk=run.pk)[0]
        page = admin_client.get(reverse("runs:page", args=[run.pk])).content.decode()
        assert "Removed by the retention policy" in page and "Private words" not in page
        assert "Re-run" not in page and "Copy as curl" not in page
        for address in (
            reverse("runs:attempt", args=[run.pk, 1, 1]),
            reverse("runs:attempt", args=[run.pk, 1, 1]) + "request/",
            reverse("runs:document", args=[run.pk]),
            reverse("runs:compare") + f"?a={run.pk}&b={other.pk}",
            reverse("runs:start", args=[run.flow.name]) + f"?from={run.pk}",
            reverse("admin:runs_run_change", args=[run.pk]),
        ):
            assert admin_client.get(address).status_code == 200, address
        answer: Any = admin_client.get(f"/api/v1/runs/{run.pk}")
        document = answer.json()
        assert document["outputs_removed_at"] and document["input"] is None and document["metadata"] == {}
        assert {attempt["output"] for step in document["steps"] for attempt in step["attempts"]} == {None}
        assert document["usage"]["total"] > 0 and "nothing of the kind" not in str(document)
        again: Any = admin_client.post(f"/api/v1/runs/{run.pk}/run-again", {}, content_type="application/json")
        assert again.status_code == 409


class TestAuditLog:
    @pytest.mark.parametrize("part", Part)
    def test_an_entry_says_that_it_begins_and_one_how_much_it_was(self, part: Part) -> None:
        run, *_ = runs = store_aged_runs(8)
        mine = [one for one in runs if one.flow_id == run.flow_id]
        purge_whole(PurgeTask(run.flow, part, NOW))
        common = {"ended_before": NOW.isoformat()} | ({"only": "outputs"} if part is Part.OUTPUTS else {})
        figures = {"runs": len(mine), "attempts": sum(one.attempt_count for one in mine)}
        entries = AuditEntry.objects.filter(action="data_deleted").order_by("pk")
        assert [entry.details for entry in entries] == [common | {"begun": True}, common | figures]
        # Nothing was due any more.
        purge_whole(PurgeTask(run.flow, part, NOW))
        assert entries.count() == 2

    @pytest.mark.parametrize("part", Part)
    def test_nothing_is_deleted_where_that_can_not_be_logged(self, monkeypatch: pytest.MonkeyPatch, part: Part) -> None:
        runs = store_aged_runs(8)
        before = count_rows(runs), read_texts(runs)

        def refuse(**_: Any) -> None:
            raise OperationalError("disk full")

        monkeypatch.setattr(purging, "log_audit_event", refuse)
        with pytest.raises(OperationalError):
            purge_flows_of(runs, part)
        assert (count_rows(runs), read_texts(runs)) == before


class TestCommands:
    def test_dry_run_and_storage_count_each_run_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        runs = store_aged_runs(40)
        since = (timezone.now() - NOW).days
        for flow in {run.flow for run in runs}:
            keep(flow, days=since + 20, outputs_days=since + 4)
        # Statistics don't know it yet: too young to be deleted uncounted, too old to keep its outputs.
        end = Run.objects.filter(ended_at__lt=NOW - timedelta(days=22)).aggregate(end=Max("ended_at"))["end"]
        Run.objects.filter(ended_at=end).update(is_counted=False)
        attempts = Attempt.objects.count()
        call_command("purge_history", "--dry-run")
        dry = capsys.readouterr().out
        call_command("storage", "--json")
        flows = json.loads(capsys.readouterr().out)["flows"]
        assert Run.objects.filter(outputs_removed_at=None).count() == len(runs)
        call_command("purge_history")
        deleted = len(runs) - Run.objects.count(), attempts - Attempt.objects.count()
        emptied = Run.objects.exclude(outputs_removed_at=None)
        assert _read_sum(dry, "would be deleted") == deleted > (0, 0)
        lost = emptied.count(), Attempt.objects.filter(step__run__in=emptied).count()
        assert _read_sum(dry, "would lose their outputs") == lost > (0, 0)
        due = sum(flow["runs_due"] for flow in flows), sum(flow["outputs_due"] for flow in flows)
        assert due == (deleted[0], lost[0])

    def test_storage_expects_little_of_runs_without_outputs(self, capsys: pytest.CaptureFixture[str]) -> None:
        flows = {run.flow for run in store_aged_runs(40)}
        for flow in flows:
            keep(flow, days=(timezone.now() - NOW).days + 20)
        freed = []
        for _ in range(2):
            call_command("storage", "--json")
            freed.append([flow["freed"] for flow in json.loads(capsys.readouterr().out)["flows"]])
            # Those that are due, and some younger ones.
            Run.objects.filter(ended_at__lt=NOW - timedelta(days=15)).update(outputs_removed_at=NOW)
        assert sum(freed[0]) > 0 == sum(freed[1])

    @pytest.mark.parametrize("options", [["--outputs"], ["--before", "2999-01-01"], ["--flow", "unknown"]])
    def test_options_that_are_not_valid_are_refused(self, options: list[str]) -> None:
        make_version()
        with pytest.raises(CommandError):
            call_command("purge_history", *options)

    @pytest.mark.parametrize("only_outputs", [False, True])
    def test_before_holds_whatever_policies_say(self, only_outputs: bool) -> None:
        runs = store_aged_runs(8)
        flow = runs[0].flow
        keep(flow, days=0)
        call_command("purge_history", *["--outputs"][: int(only_outputs)], flow=flow.name, before=NOW.date())
        kept = Run.objects.filter(outputs_removed_at=None)
        assert {run.flow_id for run in runs} - {run.flow_id for run in kept} == {flow.pk}
        assert Run.objects.count() == (len(runs) if only_outputs else kept.count())


def _read_sum(text: str, words: str) -> tuple[int, int]:
    """Runs and attempts of all lines with these words."""
    found = re.findall(rf": ([\d,]+) runs that[^\n]* {words}, ([\d,]+) attempts", text)
    return sum(int(runs.replace(",", "")) for runs, _ in found), sum(int(count.replace(",", "")) for _, count in found)
