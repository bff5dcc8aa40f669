"""Exports of runs: what stands in the files, which runs they hold, and who took them."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.exports import streaming
from runs.exports.formats import format_json_cell, format_text_cell
from runs.filters import find_runs
from runs.models import Run, RunStatus, TrailEntry
from runs.paging import Found
from runs.submission import submit_run
from tests.engine.builders import NOON, make_flow, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import sign_in

pytestmark = pytest.mark.django_db


def download(client: Client, address: str) -> str:
    """The file, whole, which must be valid UTF-8."""
    answer: Any = client.get(f"/runs/export/{address}")
    assert answer.status_code == 200
    return bytes(answer.getvalue()).decode()


def read_csv(text: str) -> list[dict[str, str]]:
    assert text.startswith("\ufeff")
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True))


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# CSV


def test_a_row_has_what_is_known_of_a_run(viewer: Client) -> None:
    run = make_retried_run(
        status=RunStatus.SUCCEEDED,
        end_reason="all_steps_passed",
        labels=["nightly", "tea"],
        started_by=User.objects.get(),
        started_at=NOON - timedelta(seconds=90.5),
        retry_count=1,
        total_tokens=990,
        cost=Decimal("0.07240000"),
        unpriced_count=2,
    )
    answer: Any = viewer.get("/runs/export/csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    name = f"toolflow-runs-{timezone.localdate().isoformat()}.csv"
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    text = answer.getvalue().decode()
    (row,) = read_csv(text)
    assert text.count("\r\n") == 2
    assert {
        "run": str(run.pk),
        "flow": "colour-theme",
        "version": "1",
        "status": "succeeded",
        "end_sentence": "All steps passed.",
        "started_by": "ada",
        "labels": "nightly; tea",
        "ended_at": "2026-11-21T12:00:00.000Z",
        "duration_seconds": "90.500",
        "attempts": "4",
        "retries": "1",
        "issues_critical": "1",
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
    viewer: Client, flow_model: str | None, step_models: list[str | None], expected: str
) -> None:
    steps = [make_step(index, model=model) for index, model in enumerate(step_models, 1)]
    submit_run(flow=make_version(make_flow(*steps, model=flow_model)).flow, input={})
    (row,) = read_csv(download(viewer, "csv"))
    assert row["model"] == expected


def test_what_is_not_known_is_empty_and_never_0(viewer: Client) -> None:
    make_run()
    (row,) = read_csv(download(viewer, "csv"))
    assert {row[name] for name in ("started_by", "started_at", "duration_seconds", "cost_usd", "labels")} == {""}


def test_cells_begin_no_formula_and_hide_no_text(viewer: Client) -> None:
    hostile, nasty = '=HYPERLINK("https://evil.example","Click")', "\u202egnp.exe \x1b[31m \x85 🍵 \u2028 end"
    document = {"topic": 'a;=1+1\n"quoted", and\ttabs', ";-x": [-5, 1.5], "nasty": nasty}
    make_stored_run(end_sentence=f"{hostile} {nasty}", labels=["+49", "@SUM(1)"], input=document)
    text = download(viewer, "csv")
    (row,) = read_csv(text)
    assert row["end_sentence"] == f"'{hostile} \\u202egnp.exe \\u001b[31m \\u0085 🍵 \\u2028 end"
    assert row["labels"] == "'+49; '@SUM(1)"
    # The same value, without the signs that would begin a cell where semicolons separate cells.
    assert json.loads(row["input"]) == document
    assert [sign for sign in (";=", ";-", "\u202e", "\x1b", "\u2028") if sign in text] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, f"'{text}") for text in ("=1", "+1", "-1", "@A1", "  =1", '"=1', "\t1", "\n1")),
        *((text, f"'{text}") for text in ("\uff1d1", "\uff0b1", "\uff0d1", "\uff201")),
        # Where semicolons separate cells, and behind line breaks, the next cell begins.
        ('a;=1\n+2\t@3; "-4;5\r=6', "a;'=1\n'+2\t'@3; \"'-4;5\\u000d=6"),
        ("a\x00b\ud800c", "a\\u0000b\\ud800c"),
        *((text, text) for text in ("Tea", "2 + 2 = 4", "a-b", "a@b.example", "1; 2", "— none", "")),
    ],
)
def test_a_text_in_a_cell(text: str, expected: str) -> None:
    assert format_text_cell(text) == expected


def test_json_in_a_cell_can_be_sent() -> None:
    assert format_json_cell({"a": "\x00\ud800"}) == '{"a":"\\u0000\\ud800"}'


# JSON Lines


def test_a_line_is_a_document_about_a_run(viewer: Client) -> None:
    older = make_retried_run(cost=Decimal("0.5"), end_sentence="Tee, süß 🍵\u2028\u202e")
    newer = make_run(older.version)
    answer: Any = viewer.get("/runs/export/jsonl")
    assert answer["Content-Type"] == "application/x-ndjson; charset=utf-8"
    text = answer.getvalue().decode()
    assert text.count("\n") == len(text.splitlines()) == 2
    assert "\u202e" not in text
    first, second = read_lines(text)
    assert (first["id"], first["status"], first["usage"]["cost"]) == (newer.pk, "queued", None)
    assert (second["id"], second["end_sentence"]) == (older.pk, "Tee, süß 🍵\u2028\u202e")
    assert second["usage"]["cost"] == "0.50000000"
    assert "steps" not in second


def test_with_attempts_it_is_what_the_page_of_the_run_gives(viewer: Client) -> None:
    runs = [make_retried_run(), make_run(make_version(make_page_flow(name="other")))]
    documents = {line["id"]: line for line in read_lines(download(viewer, "jsonl?with=attempts"))}
    for run in runs:
        expected = json.loads(viewer.get(f"/runs/{run.pk}.json").content)
        assert expected.items() <= documents[run.pk].items()
    issue = documents[runs[0].pk]["steps"][1]["attempts"][0]["issues"][0]
    assert (issue["code"], issue["vendor_id"]) == ("hex_format", 4711)


def count_queries(client: Client, address: str) -> int:
    download(client, address)
    with CaptureQueriesContext(connection) as queries:
        download(client, address)
    return len(queries)


@pytest.mark.parametrize("address", ["csv", "jsonl", "jsonl?with=attempts"])
def test_the_number_of_queries_does_not_grow_with_runs(viewer: Client, address: str) -> None:
    make_retried_run()
    few = count_queries(viewer, address)
    for _ in range(5):
        make_retried_run()
    assert count_queries(viewer, address) <= few


# Which runs


def test_the_runs_that_match_the_filters(viewer: Client) -> None:
    kept = make_stored_run(status=RunStatus.FAILED)
    make_stored_run(status=RunStatus.SUCCEEDED)
    make_stored_run(spec=make_page_flow(name="other"), status=RunStatus.FAILED)
    rows = read_csv(download(viewer, "csv?flow=colour-theme&status=failed"))
    assert [row["run"] for row in rows] == [str(kept.pk)]
    assert read_csv(download(viewer, "csv?status=cancelled")) == []
    assert download(viewer, "jsonl?status=cancelled") == ""


def test_many_batches_hold_each_run_once_whatever_happens_meanwhile(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "BATCH_SIZE", 3)
    version = make_version()
    numbers = [make_run(version).pk for _ in range(9)][::-1]
    answer: Any = viewer.get("/runs/export/jsonl")
    parts = iter(answer.streaming_content)
    first = next(parts)
    Run.objects.filter(pk=numbers[4]).delete()
    Run.objects.filter(pk=numbers[5]).update(status=RunStatus.CANCELLED, ended_at=NOON)
    make_run(version)
    lines = read_lines((first + b"".join(parts)).decode())
    assert [line["id"] for line in lines] == [*numbers[:4], *numbers[5:]]
    assert lines[4]["status"] == "cancelled"


def test_windows_without_a_match_are_followed_to_the_end(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    starts = []

    def find(filters: Any, *, before: Any, limit: int) -> Any:
        starts.append(before)
        found = find_runs(filters, limit=limit)
        return Found((), found.positions[-1]) if len(starts) < 3 else found

    monkeypatch.setattr(streaming, "find_runs", find)
    assert [line["id"] for line in read_lines(download(viewer, "jsonl"))] == [run.pk]
    assert len(starts) == 3


@pytest.mark.parametrize(
    "address",
    ["csv?status=lost", "csv?flow=%3Cscript%3E", "jsonl?stauts=failed", "csv?with=attempts", "jsonl?with=everything"],
)
def test_an_address_that_is_not_valid_gets_no_file(viewer: Client, address: str) -> None:
    make_run()
    answer = viewer.get(f"/runs/export/{address}")
    assert (answer.status_code, answer["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert "<script>" not in answer.content.decode()
    assert not TrailEntry.objects.filter(action="exported").exists()


def test_another_format_is_not_found(viewer: Client) -> None:
    assert viewer.get("/runs/export/exe").status_code == 404


# Who


def test_an_export_needs_the_permission_to_see_runs(client: Client) -> None:
    answer = client.get("/runs/export/csv?status=failed")
    assert answer["Location"] == "/accounts/login/?next=/runs/export/csv%3Fstatus%3Dfailed"
    sign_in(client)
    assert client.get("/runs/export/csv").status_code == 403


def test_every_export_is_logged_with_who_took_what(viewer: Client) -> None:
    make_run()
    download(viewer, "jsonl?status=queued&with=attempts")
    entry = TrailEntry.objects.get(action="exported")
    assert (entry.actor_id, entry.object_label) == (User.objects.get().pk, "jsonl")
    assert (entry.details["query"], entry.details["attempts"]) == ("status=queued", True)
