"""The runs of a list as a file, fetched with a token."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connections
from django.test import AsyncClient

from runs.access_groups import create_groups
from runs.models import Run, RunStatus, TrailEntry
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_retried_run

pytestmark = pytest.mark.django_db


def download(script: Script, query: str = "", **headers: str) -> str:
    """The file, whole."""
    answer: Any = script.get(f"runs/export{query}", **headers)
    assert answer.status_code == 200
    return bytes(answer.getvalue()).decode()


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def make_runs(count: int = 3, **fields: Any) -> list[Run]:
    version = make_version()
    return [make_run(version, **fields) for _ in range(count)]


def test_it_has_a_document_in_a_line_for_each_run_that_matches(viewer: Script) -> None:
    one, two, _ = make_runs()
    Run.objects.filter(pk__in=[one.pk, two.pk]).update(status="cancelled", ended_at=NOON)
    lines = read_lines(download(viewer, "?status=cancelled,failed"))
    assert [line["id"] for line in lines] == [two.pk, one.pk]
    assert lines[0]["input"] == {"topic": "tea"} and "steps" not in lines[0]


def test_attempts_come_along_where_they_are_asked_for(viewer: Script) -> None:
    make_retried_run(status=RunStatus.FAILED)
    (line,) = read_lines(download(viewer, "?attempts=all"))
    assert [attempt["number"] for attempt in line["steps"][1]["attempts"]] == [1, 2]
    assert line["steps"][1]["attempts"][0]["issues"]


@pytest.mark.parametrize(("query", "accept"), [("?format=csv", "*/*"), ("", "text/csv")])
def test_csv_has_a_row_for_each_run(viewer: Script, query: str, accept: str) -> None:
    runs = make_runs()
    answer: Any = viewer.get(f"runs/export{query}", Accept=accept)
    text = bytes(answer.getvalue()).decode()
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].startswith('attachment; filename="toolflow-runs-')
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True))
    assert [row["run"] for row in rows] == [str(run.pk) for run in reversed(runs)]


def test_it_is_kept_who_took_what_by_which_token(viewer: Script) -> None:
    make_runs(2)
    download(viewer, "?status=queued")
    entry = TrailEntry.objects.get(action="exported")
    assert (entry.actor_name, entry.token_name) == ("viewer", "viewer edit")
    assert entry.details["query"] == "status=queued"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("flow=nowhere", "flow"),
        ("format=xlsx", "format"),
        ("attempts=final", "attempts"),
        ("format=csv&attempts=all", "attempts"),
        ("limit=5", "limit"),
    ],
)
def test_what_makes_no_sense_gets_a_problem_and_no_file(viewer: Script, query: str, name: str) -> None:
    for accept in ("*/*", "text/csv"):
        answer = viewer.get(f"runs/export?{query}", Accept=accept)
        assert [error["parameter"] for error in read_problem(answer)["errors"]] == [name]
    assert not TrailEntry.objects.filter(action="exported").exists()


def test_whoever_asks_for_the_head_only_takes_nothing(viewer: Script) -> None:
    answer = viewer.ask("HEAD", "runs/export?format=csv")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert not TrailEntry.objects.filter(action="exported").exists()


@pytest.mark.django_db(transaction=True)
async def test_an_asgi_server_sends_it_as_it_is_read(transactional_db: None) -> None:
    token = await sync_to_async(lambda: make_token(_make_viewer()))()
    await sync_to_async(make_runs)(3)
    client = AsyncClient()
    answer: Any = await client.get("/api/v1/runs/export", headers={"Authorization": f"Bearer {token}"})
    assert answer.is_async
    text = b"".join([part async for part in answer]).decode()
    assert len(read_lines(text)) == 3
    await sync_to_async(answer.close)()
    await sync_to_async(connections.close_all)()


def _make_viewer() -> User:
    create_groups(apps=apps, using="default")
    return make_user("ada", "Viewer")
