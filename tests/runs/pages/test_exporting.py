"""The runs of a list as files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.models import Run, RunStatus, TrailEntry
from runs.pages import export_stream
from runs.pages.export_cells import write_json_cell, write_text_cell
from runs.submission import submit_run
from tests.engine.builders import NOON, make_attempt, make_flow, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import read_words, sign_in

pytestmark = pytest.mark.django_db

HOSTILE = '=HYPERLINK("https://evil.example","Click")'


def download(client: Client, address: str) -> str:
    """The file, whole, which must be valid UTF-8."""
    answer: Any = client.get(address)
    assert answer.status_code == 200
    return bytes(answer.getvalue()).decode()


def read_csv(text: str) -> list[dict[str, str]]:
    assert text.startswith("\ufeff")
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True))


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


class TestCsv:
    def test_a_row_has_what_is_known_of_a_run(self, viewer: Client) -> None:
        run = make_retried_run(
            status=RunStatus.SUCCEEDED,
            end_reason="all_steps_passed",
            labels=["nightly", "tea"],
            started_by=User.objects.get(),
            started_at=NOON - timedelta(seconds=90.5),
            retry_count=1,
            prompt_tokens=900,
            total_tokens=990,
            cost=Decimal("0.07240000"),
            unpriced_count=2,
        )
        answer = viewer.get("/runs/export/csv")
        assert answer["Content-Type"] == "text/csv; charset=utf-8"
        assert answer["Content-Disposition"] == (
            f'attachment; filename="toolflow-runs-{timezone.localdate().isoformat()}.csv"'
        )
        text = answer.getvalue().decode()
        (row,) = read_csv(text)
        assert text.count("\r\n") == 2
        assert {
            "run": str(run.pk),
            "flow": "colour-theme",
            "version": "1",
            "status": "succeeded",
            "end_reason": "all_steps_passed",
            "end_sentence": "All steps passed.",
            "started_by": "ada",
            "labels": "nightly; tea",
            "ended_at": "2026-11-21T12:00:00.000Z",
            "duration_seconds": "90.500",
            "attempts": "4",
            "retries": "1",
            "steps_passed": "3",
            "steps": "3",
            "issues_critical": "1",
            "issues_low": "0",
            "prompt_tokens": "900",
            "total_tokens": "990",
            "cost_usd": "0.0724",
            "unpriced_attempts": "2",
            "simulated": "no",
            "model": "gpt-4.1",
        }.items() <= row.items()
        assert json.loads(row["input"]) == {"topic": "tea"}

    @pytest.mark.parametrize(
        ("flow_model", "step_models", "expected"),
        [
            (None, ["gpt-5-nano"], "gpt-5-nano"),
            ("o3", [None], "o3"),
            ("o3", ["gpt-5-nano", None, "gpt-5-nano"], "gpt-5-nano; o3"),
        ],
    )
    def test_the_models_are_those_that_the_steps_ask(
        self, viewer: Client, flow_model: str | None, step_models: list[str | None], expected: str
    ) -> None:
        steps = [make_step(index, model=model) for index, model in enumerate(step_models, 1)]
        run = submit_run(flow=make_version(make_flow(*steps, model=flow_model)).flow, input={})
        (row,) = read_csv(download(viewer, "/runs/export/csv"))
        assert row["model"] == expected
        (line,) = read_lines(download(viewer, "/runs/export/jsonl"))
        assert line["model_settings"] == run.model_settings

    def test_what_is_not_known_is_left_empty_and_never_0(self, viewer: Client) -> None:
        make_run()
        (row,) = read_csv(download(viewer, "/runs/export/csv"))
        assert [row[name] for name in ("started_by", "started_at", "duration_seconds", "cost_usd", "labels")] == [
            ""
        ] * 5

    def test_texts_that_a_spreadsheet_would_run_are_made_inert(self, viewer: Client) -> None:
        make_stored_run(
            end_sentence=f"{HOSTILE} said the model",
            labels=["+49", "@SUM(1)"],
            input={"topic": 'a;=1+1\n"quoted", and\ttabs', ";-x": [-5, 1.5]},
        )
        text = download(viewer, "/runs/export/csv")
        (row,) = read_csv(text)
        assert row["end_sentence"] == f"'{HOSTILE} said the model"
        assert row["labels"] == "'+49; '@SUM(1)"
        # The same value, without the signs that would begin a cell where a semicolon parts cells.
        assert json.loads(row["input"]) == {"topic": 'a;=1+1\n"quoted", and\ttabs', ";-x": [-5, 1.5]}
        assert ";=" not in text and ";-" not in text

    @pytest.mark.parametrize(
        "text",
        ["=1", "+1", "-1", "@A1", "\t=1", "\n=1", "  =1", '"=1', "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"],
    )
    def test_nothing_that_begins_like_a_formula_does(self, text: str) -> None:
        assert write_text_cell(text).startswith("'")

    def test_nor_what_follows_a_semicolon_or_a_line_break(self) -> None:
        """Where a semicolon parts cells, and quotes stand in their midst, the next cell begins there."""
        assert write_text_cell('a;=1\n+2\t@3; "-4;5\r=6') == "a;'=1\n'+2\t'@3; \"'-4;5\\u000d=6"

    @pytest.mark.parametrize("text", ["Tea", "2 + 2 = 4", "a-b", "a@b.example", "1; 2", "— none", ""])
    def test_other_texts_stay_as_they_are(self, text: str) -> None:
        assert write_text_cell(text) == text

    def test_text_stays_text_whatever_characters_it_has(self, viewer: Client) -> None:
        nasty = "\u202egnp.exe \u200b \x1b[31m \x85 🍵 \u2028 end"
        make_stored_run(end_sentence=nasty, input={"topic": nasty, "deep": nest(90)})
        text = download(viewer, "/runs/export/csv")
        (row,) = read_csv(text)
        assert json.loads(row["input"]) == {"topic": nasty, "deep": nest(90)}
        assert row["end_sentence"] == "\\u202egnp.exe \\u200b \\u001b[31m \\u0085 🍵 \\u2028 end"
        assert not {"\u202e", "\x1b", "\u2028", "\x00"} & set(text)

    def test_nul_and_lone_surrogates_are_written_as_their_codes(self) -> None:
        assert write_text_cell("a\x00b\ud800c") == "a\\u0000b\\ud800c"
        assert write_json_cell({"a": "\x00\ud800"}) == '{"a":"\\u0000\\ud800"}'


def nest(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


class TestJsonLines:
    def test_a_line_is_a_document_about_a_run(self, viewer: Client) -> None:
        older = make_retried_run(labels=["nightly"], cost=Decimal("0.5"), end_sentence="Tee, süß 🍵\u2028\u202e")
        newer = make_run(older.version)
        answer = viewer.get("/runs/export/jsonl")
        assert answer["Content-Type"] == "application/x-ndjson; charset=utf-8"
        text = answer.getvalue().decode()
        assert text.count("\n") == len(text.splitlines()) == 2
        assert "\u202e" not in text
        first, second = read_lines(text)
        assert (first["id"], first["status"], first["usage"]["cost"]) == (newer.pk, "queued", None)
        assert second["id"] == older.pk
        assert second["end_sentence"] == "Tee, süß 🍵\u2028\u202e"
        assert second["labels"] == ["nightly"]
        assert second["usage"]["cost"] == "0.50000000"
        assert "steps" not in second

    def test_with_attempts_it_is_what_the_page_of_the_run_gives(self, viewer: Client) -> None:
        runs = [make_retried_run(), make_run(make_version(make_page_flow(name="other")))]
        documents = {line["id"]: line for line in read_lines(download(viewer, "/runs/export/jsonl?with=attempts"))}
        for run in runs:
            expected = json.loads(viewer.get(f"/runs/{run.pk}.json").content)
            assert expected.items() <= documents[run.pk].items()
        issue = documents[runs[0].pk]["steps"][1]["attempts"][0]["issues"][0]
        assert (issue["code"], issue["vendor_id"]) == ("hex_format", 4711)

    def test_the_number_of_queries_does_not_grow_with_runs(self, viewer: Client) -> None:
        make_retried_run()
        few = count_queries(viewer, "/runs/export/jsonl?with=attempts")
        for _ in range(5):
            make_retried_run()
        # One less where the first download has filled a cache.
        assert count_queries(viewer, "/runs/export/jsonl?with=attempts") <= few
        assert count_queries(viewer, "/runs/export/csv") <= few


def count_queries(client: Client, address: str) -> int:
    download(client, address)
    with CaptureQueriesContext(connection) as queries:
        download(client, address)
    return len(queries)


class TestWhichRuns:
    def test_those_that_match_the_filters(self, viewer: Client) -> None:
        kept = make_stored_run(status=RunStatus.FAILED)
        make_stored_run(status=RunStatus.SUCCEEDED)
        make_stored_run(spec=make_page_flow(name="other"), status=RunStatus.FAILED)
        rows = read_csv(download(viewer, "/runs/export/csv?flow=colour-theme&status=failed"))
        assert [row["run"] for row in rows] == [str(kept.pk)]

    def test_none_is_a_file_without_rows(self, viewer: Client) -> None:
        make_stored_run(status=RunStatus.SUCCEEDED)
        assert read_csv(download(viewer, "/runs/export/csv?status=failed")) == []
        assert download(viewer, "/runs/export/jsonl?status=failed") == ""

    def test_all_of_many_batches_in_order_each_once(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(export_stream, "BATCH", 3)
        version = make_version()
        numbers = [make_run(version).pk for _ in range(10)][::-1]
        assert [int(row["run"]) for row in read_csv(download(viewer, "/runs/export/csv"))] == numbers

    def test_runs_that_begin_or_go_meanwhile_do_no_harm(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(export_stream, "BATCH", 3)
        version = make_version()
        numbers = [make_run(version).pk for _ in range(9)][::-1]
        parts = iter(viewer.get("/runs/export/jsonl").streaming_content)
        first = next(parts)
        Run.objects.filter(pk=numbers[4]).delete()
        Run.objects.filter(pk=numbers[5]).update(status=RunStatus.CANCELLED, ended_at=NOON)
        make_run(version)
        lines = read_lines((first + b"".join(parts)).decode())
        assert [line["id"] for line in lines] == [*numbers[:4], *numbers[5:]]
        assert lines[4]["status"] == "cancelled"

    def test_large_runs_come_one_by_one(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(export_stream, "MAX_PART_BYTES", 5_000)
        version = make_version()
        for size in (10, 4_000, 4_000, 10):
            make_run(version, input={"topic": "x" * size})
        parts = [part for part in viewer.get("/runs/export/jsonl").streaming_content if part]
        assert [part.count(b"\n") for part in parts] == [2, 2]

    @pytest.mark.parametrize(
        ("address", "sentence"),
        [
            ("csv?status=lost", "“lost” is not a status; it can be queued, running"),
            ("csv?flow=%3Cscript%3E", "There is no flow “<script>”."),
            ("jsonl?stauts=failed", "There is no filter “stauts”; the filters are q, flow,"),
            ("csv?with=attempts", "CSV has one row for each run; attempts come with JSON Lines."),
            ("jsonl?with=everything", "“everything” can’t come with the runs; only attempts can."),
        ],
    )
    def test_an_address_that_makes_no_sense_gets_a_sentence_and_no_file(
        self, viewer: Client, address: str, sentence: str
    ) -> None:
        make_run()
        answer = viewer.get(f"/runs/export/{address}")
        assert answer.status_code == 400
        words = read_words(answer.content.decode())
        assert sentence in words
        assert "are shown" not in words
        assert not TrailEntry.objects.filter(action="exported").exists()

    def test_another_format_is_not_found(self, viewer: Client) -> None:
        assert viewer.get("/runs/export/exe").status_code == 404

    def test_a_stranger_signs_in_first_and_then_gets_the_file(self, client: Client) -> None:
        answer = client.get("/runs/export/csv?status=failed")
        assert answer["Location"] == "/accounts/login/?next=/runs/export/csv%3Fstatus%3Dfailed"
        sign_in(client)
        assert client.get("/runs/export/csv").status_code == 403


class TestTrail:
    def test_a_download_that_fails_breaks_off(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        make_run()

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("out of order")

        monkeypatch.setattr(export_stream, "find_runs", fail)
        answer = viewer.get("/runs/export/jsonl")
        with pytest.raises(RuntimeError, match="out of order"):
            list(answer.streaming_content)

    def test_every_export_leaves_an_entry_of_who_took_what(self, viewer: Client) -> None:
        make_run()
        download(viewer, "/runs/export/jsonl?status=queued&with=attempts")
        entry = TrailEntry.objects.get(action="exported")
        assert (entry.actor_id, entry.object_label) == (User.objects.get().pk, "jsonl")
        assert (entry.details["query"], entry.details["attempts"]) == ("status=queued", True)


@pytest.fixture
async def _own_thread() -> AsyncIterator[None]:
    """What asynchronous code asks of the database is asked in a thread of its own, which keeps a connection."""
    yield
    await sync_to_async(connections.close_all)()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_own_thread")
class TestAsynchronousServer:
    async def test_parts_are_read_as_they_are_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(export_stream, "BATCH", 2)
        client = AsyncClient()
        user = await User.objects.acreate(username="root", is_superuser=True)
        await sync_to_async(client.force_login)(user)
        numbers = await make_runs(5)
        answer: Any = await client.get("/runs/export/jsonl")
        parts = aiter(answer.streaming_content)
        first = await anext(parts)
        assert first.count(b"\n") == 2
        rest = [part async for part in parts]
        assert [line["id"] for line in read_lines(b"".join([first, *rest]).decode())] == numbers


async def make_runs(count: int) -> list[int]:
    """Numbers of new runs, the newest first."""
    return await sync_to_async(lambda: [make_run(make_version()).pk for _ in range(count)][::-1])()


def test_documents_name_all_that_the_page_of_a_run_knows(viewer: Client) -> None:
    run = make_stored_run(make_attempt(1, 1))
    (line,) = read_lines(download(viewer, "/runs/export/jsonl"))
    assert viewer.get(f"/runs/{run.pk}.json").json().keys() - {"steps"} == line.keys()
