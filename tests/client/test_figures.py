"""Figures on a terminal: what goes on, how the runs of a flow went, and what they used."""

from __future__ import annotations

import pytest

from runs.models import RunStatus
from tests.client.conftest import Terminal
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_audit, add_runs, add_steps, day_ago, stop_clock

pytestmark = pytest.mark.any_database


def read_rows(out: str) -> dict[str, list[str]]:
    """The words of each row of a table, by its first cell of several words."""
    return {line.split("  ")[0].strip(): line.split() for line in out.splitlines()}


def test_today_is_shown_beside_what_is_usual_by_now(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(monkeypatch)
    version = make_version()
    make_worker(in_flight=3)
    make_run(version)
    add_runs(version, day_ago(0), succeeded=3, failed=1, took=2.0)
    add_runs(version, day_ago(1), succeeded=8)
    done = terminal.run("overview")
    assert done.status == 0
    assert done.out.splitlines()[:2] == [
        "0 runs under way; queued: 1 ready, 0 later, 0 waiting",
        "1 worker alive; 3 of 200 places taken",
    ]
    rows = read_rows(done.out)
    assert rows["Runs"][-2:] == ["4", "8"]
    assert rows["Passed"][1:] == ["75", "%", "100", "%"]
    assert terminal.run("overview", "--json").json["today"]["runs"]["total"] == 4


def test_runs_that_nobody_takes_are_pointed_out(terminal: Terminal) -> None:
    make_run(available_at="2026-01-01T00:00:00Z", status=RunStatus.QUEUED)
    assert "no worker is alive that could take them" in terminal.run("overview").err


def test_how_the_runs_of_a_flow_went(terminal: Terminal) -> None:
    version = make_version()
    add_runs(version, day_ago(1), succeeded=3, failed=1, cost="0.5")
    add_steps(version, day_ago(1), begun=4, passed=3, attempts=6)
    done = terminal.run("stats", "example", "--from", str(day_ago(2)))
    rows = read_rows(done.out)
    assert done.status == 0
    assert rows["All"][1:4] == ["4", "75", "%"]
    assert rows["Version 1, live"][3:6] == ["4", "75", "%"]
    assert "gpt-5-mini" in rows and "Step 1, Step 1" in rows
    assert terminal.run("stats", "example", "--json").json["runs"]["total"] == 4


def test_how_often_audits_fired(terminal: Terminal) -> None:
    version = make_version()
    add_audit(version, day_ago(1), "Contrast", fired=4, retried=4, fixed=3)
    header, row = terminal.run("stats", "example", "--audits").out.splitlines()
    assert header.split()[:5] == ["STEP", "AUDIT", "FIRED", "RETRIED", "FIXED"]
    assert row.split()[:6] == ["1", "Contrast", "4", "4", "75", "%"]


def test_tokens_are_told_apart(terminal: Terminal) -> None:
    version = make_version()
    add_runs(version, day_ago(1), succeeded=3)
    add_runs(version, day_ago(2), succeeded=1)
    header, *rows = terminal.run("usage", "--by", "flow,day").out.splitlines()
    assert header.split()[:4] == ["FLOW", "DAY", "RUNS", "ATTEMPTS"]
    assert sorted(row.split()[:3] for row in rows) == [
        ["example", str(day_ago(2)), "1"],
        ["example", str(day_ago(1)), "3"],
    ]


def test_what_can_not_be_is_told_in_a_sentence(terminal: Terminal) -> None:
    for arguments, sentence in (
        (["usage", "--by", "colour"], "group_by"),
        (["usage", "--from", "soon"], "from"),
        (["stats", "nowhere"], "There is no flow “nowhere”."),
        (["stats", "a/b"], "can’t be the name of a flow"),
    ):
        done = terminal.run(*arguments)
        assert (done.status, done.out, sentence in done.err) == (3, "", True), done.err
