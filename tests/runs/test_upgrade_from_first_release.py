"""A database that version 0.1.0 made and filled is brought to the newest tables, and all that is in it can be used."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django import DjangoDbBlocker

from runs.archive.restoring import restore_archive
from runs.archive.writing import write_archive
from runs.models import DailyRuns, Run
from runs.tally import tally_ended_runs
from tests.databases import migrate
from tests.engine.model_server import ModelServer
from tests.runs.archive.archives import purge_all, read_documents
from tests.runs.executing import drain
from tests.runs.recounting import read_statistics, recount

DUMP = Path(__file__).with_name("first_release.sql")

STATUSES = {1: "succeeded", 2: "failed", 3: "errored", 4: "cancelled", 5: "queued"}
"""Of the runs in it."""
ENDED = [number for number, status in STATUSES.items() if status != "queued"]


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That database with the newest tables."""
    if connection.vendor != "sqlite":
        pytest.skip("The database of version 0.1.0 is one of SQLite.")
    folder = tmp_path_factory.mktemp("first_release")
    path = folder / "toolflow.sqlite3"
    made = sqlite3.connect(path)
    made.executescript(DUMP.read_text(encoding="utf-8"))
    made.close()
    migrate(f"sqlite:///{path}", folder)
    return path


@pytest.fixture
def client(upgraded: Path, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Client]:
    """Somebody who may see everything, in a website over a copy of it."""
    path = shutil.copy(upgraded, tmp_path / "toolflow.sqlite3")
    with django_db_blocker.unblock():
        usual = connection.settings_dict["NAME"]
        connection.close()
        # The settings of a connection are those of all threads.
        connection.settings_dict["NAME"] = str(path)
        try:
            client = Client()
            client.force_login(User.objects.create_superuser("root"))
            yield client
        finally:
            connection.close()
            connection.settings_dict["NAME"] = usual


def tally() -> None:
    """Do what workers do about runs that they find ended."""
    while tally_ended_runs():
        pass


def read(client: Client, address: str) -> str:
    answer = client.get(address, follow=True)
    assert answer.status_code == 200, address
    return b"".join(answer).decode() if answer.streaming else answer.content.decode()


def test_every_run_opens_with_what_was_stored(client: Client) -> None:
    assert dict(Run.objects.values_list("pk", "status")) == STATUSES
    pages = {number: read(client, f"/runs/{number}/") for number in STATUSES}
    assert "Quince jelly, sour and süß at once." in pages[1] and "It has only 5 characters." in pages[1]
    assert "the last output has 1 high issue" in pages[2]
    assert "The provider had an error of its own (500)." in pages[3]
    for number in (1, 2, 3):
        assert "Describe the jam in one sentence." in read(client, f"/runs/{number}/steps/1/attempts/1/request/")


def test_lists_flows_and_the_editor_open(client: Client) -> None:
    tally()
    page = read(client, "/runs/")
    assert all(f'href="/runs/{number}/"' in page for number in STATUSES)
    for address in (
        "/",
        "/flows/",
        "/flows/jam-label/",
        "/runs/?status=failed",
        "/workers/",
        "/admin/flows/flow/1/change/",
    ):
        assert "Jam label" in read(client, address) or address == "/workers/"


def test_the_api_tells_of_attempts_issues_and_tokens(client: Client) -> None:
    document: Any = client.get("/api/v1/runs/1").json()
    assert (document["status"], document["input"], document["started_by"]) == ("succeeded", {"fruit": "quince"}, "ada")
    first, second = document["steps"][1]["attempts"]
    assert (first["outcome"], first["output"], [issue["severity"] for issue in first["issues"]]) == (
        "failed", {"text": "Sour."}, ["high"],
    )  # fmt: skip
    assert (second["outcome"], second["issues"]) == ("passed", [])
    assert first["usage"]["total"] + second["usage"]["total"] < document["usage"]["total"]
    listed: Any = client.get("/api/v1/runs").json()
    assert [run["id"] for run in listed["items"]] == [5, 4, 3, 2, 1]


def test_statistics_and_search_know_them_once_a_worker_has_looked(client: Client) -> None:
    tally()
    (row,) = DailyRuns.objects.all()
    assert (row.runs, row.succeeded, row.failed, row.errored, row.cancelled) == (4, 1, 1, 1, 1)
    assert row.prompt_tokens > 0 and row.retries == 2
    assert read_statistics() == recount(Run.objects.filter(pk__in=ENDED))
    page = read(client, "/runs/?q=jelly")
    assert 'href="/runs/1/"' in page and 'href="/runs/2/"' not in page
    figures: Any = client.get("/api/v1/flows/jam-label/statistics?from=2026-11-22&to=2026-11-22").json()
    assert figures["runs"]["total"] == 4


def test_the_run_that_waited_is_done(client: Client, provider: ModelServer) -> None:
    drain()
    assert Run.objects.get(pk=5).status == "succeeded"
    assert "Succeeded" in read(client, "/runs/5/")


def test_they_can_be_archived_deleted_and_restored(client: Client, tmp_path: Path) -> None:
    tally()
    runs = list(Run.objects.filter(pk__in=ENDED))
    Run.objects.filter(pk__in=ENDED).update(ended_at="2024-11-01T12:00Z")
    DailyRuns.objects.update(day="2024-11-01")
    before = read_documents(runs)
    assert not write_archive(tmp_path / "old.jsonl.gz", run_ids=ENDED).misfits
    purge_all(runs)
    restored = restore_archive(tmp_path / "old.jsonl.gz")
    assert (restored.runs, restored.counted, read_documents(runs)) == (4, 0, before)
