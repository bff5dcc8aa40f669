"""What takes the room, and what a policy would free."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from tests.runs.retention.aged_runs import store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def test_tables_and_flows_are_measured_and_what_a_policy_would_free(capsys: pytest.CaptureFixture[str]) -> None:
    runs = store_aged_runs(12)
    call_command("storage", "--json", "--keep-days", "1")
    document = json.loads(capsys.readouterr().out)
    assert document["total"] > 0
    assert "runs_attempt" in {table["name"] for table in document["tables"]}
    assert sum(flow["runs"] for flow in document["flows"]) == len(runs)
    assert sum(flow["runs_due"] for flow in document["flows"]) == len(runs)
    for flow in document["flows"]:
        assert flow["run_bytes"] == sum(flow[part] for part in ("inputs", "outputs", "requests", "issues")) > 0
        assert flow["freed"] == flow["runs_due"] * flow["run_bytes"]


def test_it_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    store_aged_runs(4)
    call_command("storage")
    lines = capsys.readouterr().out
    assert lines.startswith("The database takes ") and "runs for ever, outputs for ever" in lines


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(CommandError, match="Outputs can’t be kept longer than their runs"):
        call_command("storage", "--keep-days", "1", "--keep-outputs-days", "2")
