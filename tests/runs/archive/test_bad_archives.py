"""A file that is not whole is refused with the line that is wrong; a run that can't be stored keeps no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from flows.models import Flow
from flows.webhook_address import find_problem
from runs.archive.reading import BadArchiveError, check_archive
from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from runs.models import Run
from tests.runs.archive.archives import edit_lines, find_run_line, forge, forget_everything, purge_all, read_documents

pytestmark = pytest.mark.django_db


class TestBadFiles:
    @pytest.mark.parametrize(
        ("edit", "sentence"),
        [
            (lambda lines: lines.pop(), "The file is cut off after line "),
            (lambda lines: lines.append({}), "the file goes on after its end."),
            (lambda lines: lines[0].update(format="other"), "Line 1 does not say that this is an archive of ToolFlow."),
            (lambda lines: lines[0].update(version=2), "Line 1: the file has version 2 of the format"),
            (lambda lines: find_run_line(lines).update(status="failed"), "The file was changed since it was written"),
            (lambda lines: lines.insert(2, {"else": 1}), "Line 3 holds neither a run nor a version of a flow."),
            (lambda lines: find_run_line(lines).update(id="../../etc"), "the run has no number."),
            (lambda lines: find_run_line(lines).update(steps=[1]), "are no list of steps with attempts."),
        ],
    )
    def test_they_are_refused_before_anything_is_stored(
        self, archive: Path, runs: list[Run], edit: Any, sentence: str
    ) -> None:
        purge_all(runs)
        edit_lines(archive, edit)
        with pytest.raises(BadArchiveError, match=sentence.replace("(", r"\(")):
            restore_archive(archive)
        assert not Run.objects.exists()

    @pytest.mark.parametrize("content", [b"", b"\x1f\x8bnothing", b"=HYPERLINK()\n", b"[" * 100_000, b"\xff\xfe\n"])
    def test_what_is_no_archive_gets_one_sentence(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(BadArchiveError):
            check_archive(path)

    def test_half_of_a_file_is_refused(self, archive: Path) -> None:
        archive.write_bytes(archive.read_bytes()[:-200])
        with pytest.raises(BadArchiveError, match="cut off or damaged"):
            check_archive(archive)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"created_at": "yesterday"}, "“created_at” has a value that can’t be: 'yesterday'"),
            ({"status": "queued"}, "has not ended"),
            ({"total_tokens": "=1+1"}, "“total_tokens” has a value that can’t be: '=1\\+1'"),
            ({"end_sentence": "a\0b"}, "“end_sentence” has a value that can’t be"),
            ({"later": 1}, "“later” is not known to this version of ToolFlow"),
            ({"flow": "unheard-of"}, "is of a version that the file does not hold"),
            ({"attempt_count": None}, "“attempt_count” is missing"),
        ],
    )
    def test_a_run_with_values_that_cannot_be_is_named_and_the_others_come_back(
        self, runs: list[Run], archive: Path, change: dict[str, Any], sentence: str
    ) -> None:
        forge(archive, lambda lines: find_run_line(lines).update(change))
        purge_all(runs)
        restored = restore_archive(archive)
        assert re.fullmatch(f"Line 3, run \\d+: .*{sentence}.*", str(restored.misfits))
        assert (restored.runs, len(restored.misfits)) == (len(runs) - 1, 1)
        assert Run.objects.count() == len(runs) - 1

    def test_a_run_that_the_database_refuses_keeps_no_other_of_its_portion(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def blind(lines: list[Any]) -> None:
            del next(line["run"] for line in lines if "run" in line and line["run"]["steps"])["steps"][0]["index"]

        before = read_documents(runs)
        forge(archive, blind)
        purge_all(runs)
        with pytest.raises(CommandError, match=r"1 runs were left out, since they can’t be stored\. Line \d+, run "):
            call_command("restore_archive", str(archive))
        (lost,) = {run.pk for run in runs} - set(Run.objects.values_list("pk", flat=True))
        assert read_documents([run for run in runs if run.pk != lost]) == [one for one in before if one["id"] != lost]
        assert f"{len(runs) - 1} runs with" in capsys.readouterr().out

    def test_the_check_names_what_could_not_come_back_and_stores_nothing(
        self, runs: list[Run], archive: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        forge(archive, lambda lines: find_run_line(lines).update(status="queued"))
        forget_everything(runs)
        with pytest.raises(CommandError, match=r"1 of them can’t be restored here\. Line 3, run .*it has not ended"):
            call_command("restore_archive", str(archive), "--check")
        assert not Flow.objects.exists()


class TestOddValues:
    """What the website let in comes back, whatever forms would say of it today."""

    @pytest.mark.parametrize("address", ["http://n8n:5678/webhook/abc", "https://my_host.example.com/x"])
    def test_addresses_of_webhooks_are_those_that_the_api_takes(
        self, runs: list[Run], tmp_path: Path, address: str
    ) -> None:
        assert not find_problem(address)
        Run.objects.filter(pk=runs[1].pk).update(webhook_url=address)
        before, path = read_documents(runs), tmp_path / "history.jsonl.gz"
        write_archive(path, run_ids=[run.pk for run in runs])
        purge_all(runs)
        assert restore_archive(path).runs == len(runs)
        assert read_documents(runs) == before

    @pytest.fixture
    def odd(self, runs: list[Run]) -> Run:
        """A run that a later version of ToolFlow ended for a reason of its own."""
        Run.objects.filter(pk=runs[1].pk).update(end_reason="boredom")
        return runs[1]

    def test_a_run_that_could_not_be_restored_is_not_deleted(
        self, runs: list[Run], odd: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(CommandError, match=f"It failed for 1 runs, which are left; the log says why: {odd.pk}$"):
            call_command("purge_history", "--before", "2024-11-21", "--archive", str(tmp_path))
        assert list(Run.objects.all()) == [odd]
        assert f"run {odd.pk}: “end_reason” has a value that can’t be: 'boredom'" in caplog.text

    def test_an_archive_names_it(self, runs: list[Run], odd: Run, tmp_path: Path) -> None:
        path = tmp_path / "history.jsonl.gz"
        with pytest.raises(CommandError, match=f"1 of these runs could not be restored .* run {odd.pk}: “end_reason”"):
            call_command("archive_history", "--out", str(path))
        assert check_archive(path).runs == len(runs)
