"""Exports of runs and documents about one: what is in the files, which runs they hold, and who took them."""

from __future__ import annotations

import contextlib
import csv
import gc
import http.client
import io
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from runs.exports import streaming
from runs.exports.formats import format_text_cell
from runs.matching_runs import fetch_matching_runs
from runs.models import AuditEntry, Run, RunStatus
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.serving import serve
from tests.waiting import wait_until

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


def test_a_row_has_what_is_known_of_a_run_and_leaves_out_the_rest(viewer: Client) -> None:
    known = {"retry_count": 1, "total_tokens": 990, "cost": Decimal("0.07240000"), "unpriced_count": 2}
    run = make_retried_run(
        labels=["nightly", "tea"], started_by=User.objects.get(), started_at=NOON - timedelta(seconds=90.5), **known
    )
    make_run(run.version)
    answer: Any = viewer.get("/runs/export/csv")
    name = f"toolflow-runs-{timezone.localdate().isoformat()}.csv"
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    text = answer.getvalue().decode()
    queued, row = read_csv(text)
    assert text.count("\r\n") == 3
    expected = {
        "run": str(run.pk),
        "flow": "colour-theme",
        "version": "1",
        "started_by": "ada",
        "labels": "nightly; tea",
    }
    expected |= {"ended_at": "2026-11-21T12:00:00.000Z", "duration_seconds": "90.500", "attempts": "4", "retries": "1"}
    expected |= {"issues_critical": "1", "cost_usd": "0.0724", "unpriced_attempts": "2", "model": "gpt-4.1"}
    assert expected.items() <= row.items() and json.loads(row["input"]) == {"topic": "tea"}
    assert {queued[name] for name in ("started_by", "started_at", "duration_seconds", "cost_usd", "labels")} == {""}


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


# Which runs


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


# Who


# From a real server: they arrive while they are read, and few are sent at a time

TIMEOUT = 30.0


@pytest.fixture
def server() -> Iterator[int]:
    """The site, served as in production; gives its port."""
    with serve() as port:
        yield port


class Gate:
    """Lets searches for runs pass one by one, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0
        self._permits = threading.Semaphore(1)
        monkeypatch.setattr(streaming, "fetch_matching_runs", self._find_runs)
        monkeypatch.setattr(streaming, "BATCH_SIZE", 2)

    def open(self, times: int = 1) -> None:
        self._permits.release(times)

    def _find_runs(self, *arguments: Any, **options: Any) -> Any:
        assert self._permits.acquire(timeout=TIMEOUT)
        self.passed += 1
        return fetch_matching_runs(*arguments, **options)


@pytest.fixture
def cookie() -> str:
    """The cookie of a user who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextlib.contextmanager
def ask(port: int, address: str, cookie: str, *, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
    """A response that has begun; the client disconnects at the end."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
        connection.request(method, address, headers={"Cookie": cookie})
        with connection.getresponse() as answer:
            yield answer


def make_runs(count: int) -> list[int]:
    """Numbers of new runs, the newest first."""
    version = make_version()
    return [make_run(version).pk for _ in range(count)][::-1]


@pytest.mark.django_db(transaction=True)
def test_the_first_runs_arrive_before_the_last_are_read(
    server: int, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = make_runs(5)
    gate = Gate(monkeypatch)
    with ask(server, "/runs/export/csv", cookie) as answer:
        header, *lines = (answer.readline() for _ in range(3))
        assert header.startswith("\ufeffrun,flow,".encode())
        assert [int(line.split(b",")[0]) for line in lines] == numbers[:2]
        assert gate.passed == 1
        gate.open(3)
        assert [int(line.split(b",")[0]) for line in answer.read().splitlines()] == numbers[2:]


@pytest.mark.django_db(transaction=True)
def test_a_client_that_disconnects_ends_the_export(server: int, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs(9)
    gate = Gate(monkeypatch)
    with ask(server, "/runs/export/csv", cookie) as answer:
        for _ in range(3):
            answer.readline()
    gate.open()

    def is_over() -> bool:
        # A response whose client disconnected is held by a circle of references.
        gc.collect()
        return not list(streaming._sending)

    wait_until(is_over, within=TIMEOUT, what="the export is over")
    assert gate.passed <= 2


@pytest.mark.django_db(transaction=True)
def test_a_bounded_number_is_sent_at_a_time(server: int, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_FILES", 2)
    make_runs(3)
    gate = Gate(monkeypatch)
    with contextlib.ExitStack() as stack:
        answers = [stack.enter_context(ask(server, "/runs/export/csv", cookie)) for _ in range(2)]
        logged = AuditEntry.objects.count()
        assert stack.enter_context(ask(server, "/runs/", cookie)).status == 200
        for address in ("/runs/export/jsonl", "/trail/export.csv", "/api/v1/runs/export"):
            refused = stack.enter_context(ask(server, address, cookie))
            assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
            # What only asks for the headers takes no slot, and needs none.
            with ask(server, address, cookie, method="HEAD") as head:
                assert (head.status, head.read()) == (200, b"")
        assert AuditEntry.objects.count() == logged
        gate.open(10)
        assert {len(answer.read().splitlines()) for answer in answers} == {4}

    def is_accepted() -> bool:
        with ask(server, "/runs/export/csv", cookie) as again:
            return again.status == 200

    # The last byte arrives before the server has closed its response.
    wait_until(is_accepted, within=TIMEOUT, what="a slot is free")
