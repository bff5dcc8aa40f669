"""Cancelling runs and running them again from a terminal: single ones, and all that match filters."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import takewhile

import pytest

from flows.engine.spec import AuditSpec
from runs.client.server import TRIES
from runs.models import BulkAction, FacetKind, Run, RunStatus
from tests.client.conftest import PATIENCE, Terminal
from tests.client.stand_in import answer_json, answer_problem
from tests.client.test_runs import make_local
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain
from tests.runs.listed_runs import make_listed_run
from tests.waiting import wait_until

NEVER = AuditSpec(name="Never", rule="false", message="'Too short.'")


def make_ended(count: int, status: str = RunStatus.FAILED, **fields: object) -> list[int]:
    """Numbers of ended runs, the oldest first."""
    version = make_version(make_local())
    ended = {"ended_at": NOON, "started_at": NOON - timedelta(seconds=9)}
    return [make_run(version, status=status, **ended, **fields).pk for _ in range(count)]


def answer_at_a_terminal(terminal: Terminal, answer: str, *arguments: str) -> tuple[int, str]:
    """The exit status, and what somebody is shown who sits at a terminal and types one line."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "runs.client", *arguments],
        cwd=terminal.folder,
        env=terminal.environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.write(ours, f"{answer}\n".encode())
        out, err = process.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    return process.returncode, out + err


class TestOneByOne:
    def test_a_run_is_run_again_and_named(self, terminal: Terminal, server: str) -> None:
        (source,) = make_ended(1, labels=["tea"])
        done = terminal.run("rerun", str(source))
        run = Run.objects.latest("pk")
        assert (done.status, done.out) == (0, f"Run {run.pk} of “colour-theme”, version 1: queued\n")
        assert (run.input, run.labels, run.pk > source) == ({"topic": "tea"}, ["tea"], True)

    def test_it_is_waited_for_and_gives_the_status_of_how_it_ended(self, terminal: Terminal) -> None:
        (source,) = make_ended(1)
        process = terminal.begin("rerun", str(source), "--live", "--input", '{"topic": "coffee"}', "--wait")
        wait_until(lambda: Run.objects.count() == 2 or process.poll() is not None, within=60, what="it has begun")
        drain()
        done = terminal.end(process)
        assert (done.status, done.json) == (0, {"n": 2})
        assert Run.objects.latest("pk").input == {"topic": "coffee"}

    def test_several_are_run_again_each(self, terminal: Terminal) -> None:
        first, second = make_ended(2)
        done = terminal.run("rerun", str(first), str(second), "--json")
        assert [run["status"] for run in done.json] == ["queued", "queued"]
        assert Run.objects.count() == 4

    def test_runs_that_have_begun_are_named_though_another_can_not_be_run_again(self, terminal: Terminal) -> None:
        first, second = make_ended(2)
        done = terminal.run("rerun", str(first), "4711", str(second))
        begun = list(Run.objects.filter(pk__gt=second).order_by("pk").values_list("pk", flat=True))
        assert done.out.splitlines() == [f"Run {pk} of “colour-theme”, version 1: queued" for pk in begun]
        assert (done.status, len(begun)) == (1, 2)
        assert "toolflow: run 4711: There is no run 4711.\n" in done.err

    def test_a_script_is_given_the_runs_that_have_begun(self, terminal: Terminal) -> None:
        (source,) = make_ended(1)
        done = terminal.run("rerun", str(source), "4711", "--json")
        run = Run.objects.latest("pk")
        assert (done.status, [one["id"] for one in done.json]) == (1, [run.pk])
        assert done.err.splitlines()[0] == f"Run {source} is run again as run {run.pk}."

    def test_those_that_go_on_are_named_to_whoever_stops_waiting(self, terminal: Terminal) -> None:
        first, second = make_ended(2)
        process = terminal.begin("rerun", str(first), str(second), "--wait")
        assert process.stderr is not None
        lines = list(takewhile(lambda line: ": queued, " not in line, process.stderr))
        begun = list(Run.objects.filter(pk__gt=second).order_by("pk").values_list("pk", flat=True))
        again = zip((first, second), begun, strict=True)
        assert lines == [f"Run {source} is run again as run {pk}.\n" for source, pk in again]
        process.send_signal(signal.SIGINT)
        done = terminal.end(process)
        said = "Runs {0}, {1} go on; “toolflow cancel {0} {1}” would end them."
        assert (done.status, said.format(*begun) in done.err) == (130, True)

    def test_a_run_that_can_not_be_cancelled_keeps_no_other_from_it(self, terminal: Terminal) -> None:
        (ended,) = make_ended(1)
        first, second = make_run().pk, make_run().pk
        done = terminal.run("cancel", str(first), str(ended), str(second))
        assert (done.status, done.out) == (1, f"Run {first} is cancelled.\nRun {second} is cancelled.\n")
        assert done.err == f"toolflow: run {ended}: Run {ended} has ended already: it failed.\n"
        assert set(Run.objects.filter(pk__in=[first, second]).values_list("status", flat=True)) == {"cancelled"}

    def test_a_script_is_told_which_were_cancelled(self, terminal: Terminal) -> None:
        run = make_run().pk
        done = terminal.run("cancel", str(run), "4711", "--json")
        assert (done.status, [one["id"] for one in done.json]) == (1, [run])
        none = terminal.run("cancel", "4711", "4712", "--json")
        assert (none.status, none.json, none.err.count("There is no run")) == (3, [], 2)

    def test_the_rest_is_not_tried_where_the_server_is_away(self, stand_in: Callable[..., Terminal]) -> None:
        cancelled = answer_json({"id": 7, "status": "cancelled"}, 202)
        terminal = stand_in(cancelled, *[answer_problem(503, Retry_After="0")] * TRIES)
        done = terminal.run("cancel", "7", "8", "9", "10", "--json")
        assert (done.status, done.json) == (1, [{"id": 7, "status": "cancelled"}])
        said = ["Run 7 is cancelled.", "toolflow: run 8: This is 503.", "Not tried: 9, 10."]
        assert (done.err.splitlines(), len(terminal.asked)) == (said, 1 + TRIES)

    def test_one_that_there_is_not_is_named(self, terminal: Terminal) -> None:
        done = terminal.run("rerun", "4711")
        assert (done.status, done.err) == (3, "toolflow: There is no run 4711.\n")


class TestAllThatMatch:
    def test_nothing_is_done_where_nobody_can_be_asked(self, terminal: Terminal) -> None:
        make_run(), make_run()
        done = terminal.run("cancel", "--status", "queued")
        assert (done.status, done.out) == (3, "")
        assert done.err.startswith("toolflow: Cancel 2 runs (the newest: ")
        assert done.err.endswith("--yes does it without being asked.\n")
        assert set(Run.objects.values_list("status", flat=True)) == {"queued"}

    def test_whoever_sits_at_the_terminal_is_asked_first(self, terminal: Terminal) -> None:
        run = make_run()
        status, shown = answer_at_a_terminal(terminal, "n", "cancel", "--flow", run.flow.name)
        assert status == 3
        assert shown == f"Cancel 1 run (the newest: {run.pk})? [y/N] toolflow: Nothing is done.\n"
        status, shown = answer_at_a_terminal(terminal, "y", "cancel", "--flow", run.flow.name)
        assert (status, "done, 1 run cancelled" in shown) == (0, True)
        assert Run.objects.get().status == "cancelled"

    def test_they_are_cancelled_and_no_others(self, terminal: Terminal) -> None:
        version = make_version()
        for _ in range(2):
            make_listed_run(version, status="queued", facets=[(FacetKind.LABEL, "nightly")])
        other = make_run(version)
        done = terminal.run("cancel", "--label", "nightly", "--yes")
        assert (done.status, done.out) == (0, f"Bulk action {BulkAction.objects.get().pk}: done, 2 runs cancelled\n")
        assert list(Run.objects.exclude(status="cancelled")) == [other]

    def test_they_are_run_again_up_to_a_number(self, terminal: Terminal) -> None:
        numbers = make_ended(3)
        done = terminal.run("rerun", "--status", "failed,errored", "--most", "2", "--yes", "--json")
        assert (done.status, done.json["done"], done.json["version"]) == (0, 2, "same")
        assert Run.objects.filter(pk__gt=numbers[-1], labels=[done.json["label"]]).count() == 2

    def test_the_new_runs_are_waited_for_and_the_gravest_status_is_given(self, terminal: Terminal) -> None:
        version = make_version(make_local(audits=(NEVER,), max_retries=0))
        ended = {"ended_at": NOON, "started_at": NOON}
        numbers = [make_run(version, status="errored", **ended).pk for _ in range(2)]
        process = terminal.begin("rerun", "--flow", "colour-theme", "--yes", "--wait")
        wait_until(lambda: Run.objects.count() == 4 or process.poll() is not None, within=60, what="they have begun")
        drain()
        done = terminal.end(process)
        assert (done.status, "2 runs failed" in done.err) == (1, True)
        assert {run.status for run in Run.objects.filter(pk__gt=numbers[-1])} == {"failed"}

    def test_where_there_is_none_nothing_is_done(self, terminal: Terminal) -> None:
        make_ended(1)
        done = terminal.run("cancel", "--flow", "colour-theme", "--yes")
        assert (done.status, done.err) == (0, "There are no such runs.\n")
        assert not BulkAction.objects.exists()

    @pytest.mark.parametrize("command", ["cancel", "rerun"])
    def test_a_script_is_told_that_there_is_none(self, terminal: Terminal, command: str) -> None:
        done = terminal.run(command, "--label", "nosuch", "--yes", "--json")
        assert (done.status, done.json["count"], done.json["examples"]) == (0, 0, [])

    def test_a_filter_that_makes_no_sense_is_told(self, terminal: Terminal) -> None:
        done = terminal.run("cancel", "--status", "lost", "--yes")
        assert (done.status, "/filters/status: " in done.err) == (3, True)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["cancel"], "Name runs by their numbers, choose them by filters such as --flow, or say --all."),
            (["cancel", "7", "--flow", "a"], "Either numbers of runs, or filters: both together can’t be meant."),
            (["rerun", "--flow", "a", "--all"], "--all means all runs; leave it out with filters."),
            (["rerun", "--flow", "a", "--input", "{}"], "--input is for a single run: name its number."),
            (["rerun", "7", "--most", "2"], "--most is for filters; with numbers, exactly those runs are run again."),
        ],
    )
    def test_what_can_not_be_meant_is_refused(self, tmp_path: object, arguments: list[str], sentence: str) -> None:
        terminal = Terminal(tmp_path, TOOLFLOW_URL="http://127.0.0.1:1", TOOLFLOW_TOKEN="tf_0123")  # type: ignore[arg-type]
        done = terminal.run(*arguments)
        assert (done.status, done.err) == (3, f"toolflow: {sentence}\n")

    def test_who_may_not_change_runs_is_told_what_is_missing(self, make_terminal: Callable[..., Terminal]) -> None:
        make_run()
        done = make_terminal("Viewer").run("cancel", "--all", "--yes")
        assert (done.status, "lacks the permission “runs.change_run”" in done.err) == (3, True)

    @pytest.mark.parametrize(
        ("status", "failed", "exit_status", "remark"),
        [
            ("done", 1, 1, "Run 7: Its flow is archived."),
            ("stopped", 0, 2, "Run 7: Its flow is archived."),
            ("working", 0, 0, "Its progress: http://example.com/runs/bulk/5/"),
        ],
    )
    def test_what_was_left_out_and_what_is_left_to_a_worker_is_shown(
        self, stand_in: Callable[..., Terminal], status: str, failed: int, exit_status: int, remark: str
    ) -> None:
        preview = {"count": 2, "is_exact": True, "newest": 9, "examples": [9, 8], "cost": None}
        action = {
            "id": 5,
            "kind": "cancel",
            "status": status,
            "done": 1,
            "skipped": 0,
            "failed": failed,
            "problem": "",
            "label": None,
            "page_url": "http://example.com/runs/bulk/5/",
            "notes": [{"run": 7, "failed": True, "sentence": "Its flow is archived."}],
        }
        done = stand_in(answer_json(preview), answer_json(action, 202)).run("cancel", "--all", "--yes")
        assert (done.status, remark in done.err) == (exit_status, True)
        assert done.out.startswith(f"Bulk action 5: {status}, 1 run cancelled")
