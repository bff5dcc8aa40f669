"""The export of runs over the API: formats, parameters, and whose token took them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.models import AuditEntry, RunStatus
from tests.api.asking import Script
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_retried_run

pytestmark = pytest.mark.django_db


def download(script: Script, query: str = "", **headers: str) -> tuple[str, str]:
    """The media type and the text of the file."""
    answer: Any = script.get(f"runs/export{query}", **headers)
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith('attachment; filename="toolflow-runs-')
    return answer["Content-Type"], bytes(answer.getvalue()).decode()


@pytest.mark.parametrize(
    ("query", "accept", "format"),
    [
        ("", "*/*", "jsonl"),
        ("", "application/json", "jsonl"),
        ("", "text/csv", "csv"),
        ("?format=csv", "*/*", "csv"),
        ("?format=jsonl", "text/csv", "jsonl"),
    ],
)
def test_the_parameter_or_the_header_chooses_the_format(viewer: Script, query: str, accept: str, format: str) -> None:
    run = make_run()
    media_type, text = download(viewer, query, Accept=accept)
    if format == "csv":
        assert media_type == "text/csv; charset=utf-8"
        assert text.splitlines()[1].startswith(f"{run.pk},")
    else:
        assert media_type == "application/x-ndjson; charset=utf-8"
        assert json.loads(text)["id"] == run.pk


def test_filters_choose_the_runs_attempts_come_if_asked_for_and_each_export_is_logged(viewer: Script) -> None:
    kept = make_retried_run(status=RunStatus.FAILED)
    make_run(make_version())
    lines = {parts: json.loads(download(viewer, f"?status=failed&attempts={parts}")[1]) for parts in ("all", "none")}
    assert {line["id"] for line in lines.values()} == {kept.pk}
    assert [attempt["number"] for attempt in lines["all"]["steps"][1]["attempts"]] == [1, 2]
    assert "steps" not in lines["none"]
    entry = AuditEntry.objects.filter(action="exported").latest("pk")
    assert (entry.actor_name, entry.token_name) == ("viewer", "viewer edit")
    assert entry.details["query"] == "status=failed"
