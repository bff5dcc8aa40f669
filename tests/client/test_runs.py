"""Starting, following, listing, showing and cancelling runs from a terminal."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

from flows.engine.spec import AuditSpec, FlowSpec
from runs.models import Run, RunStatus
from tests.client.conftest import Done, Terminal
from tests.engine.builders import NOON, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.waiting import wait_until

INPUT = '{"topic": "tea"}'
NEVER = AuditSpec(name="Never", rule="false", message="'Too short.'", suggestions="['Write more.']")


def make_local(**fields: Any) -> FlowSpec:
    return make_page_flow(make_step(1, compute="{'n': 1}"), make_step(2, compute="{'n': 2}", **fields))


def wait_for_run(process: subprocess.Popen[str]) -> Run:
    """The run that a command has started."""
    wait_until(
        lambda: Run.objects.exists() or process.poll() is not None, within=60, what="the command has started a run"
    )
    return Run.objects.get()


def run_and_wait(terminal: Terminal, *more: str) -> Done:
    process = terminal.begin("run", "colour-theme", "--input", INPUT, "--wait", *more)
    wait_for_run(process)
    drain()
    return terminal.end(process)


def test_a_run_is_started_and_named(terminal: Terminal, server: str) -> None:
    make_version(make_local())
    done = terminal.run("run", "colour-theme", "--input", INPUT, "--label", "nightly", "--label", "tea")
    run = Run.objects.get()
    assert (done.status, done.out) == (0, f"Run {run.pk} of “colour-theme”, version 1: queued\n")
    assert done.err.strip() == f"{server}/runs/{run.pk}/"
    assert (run.input, run.labels) == ({"topic": "tea"}, ["nightly", "tea"])


def test_a_run_that_succeeds_gives_its_last_output_and_status_0(terminal: Terminal) -> None:
    make_version(make_local())
    done = run_and_wait(terminal)
    assert (done.status, done.json) == (0, {"n": 2})
    assert "succeeded" in done.err


def test_a_run_that_fails_shows_the_output_that_did_not_pass_with_its_issues_and_gives_status_1(
    terminal: Terminal,
) -> None:
    make_version(make_local(audits=(NEVER,), max_retries=0))
    done = run_and_wait(terminal)
    assert (done.status, done.out) == (1, "")
    shown = " ".join(done.err.split())
    assert "Step 2, attempt 1: failed" in shown
    assert '{ "n": 2 }' in shown
    assert "critical" in shown and "Too short." in shown and "→ Write more." in shown


def test_a_run_that_errors_or_is_cancelled_gives_status_2(terminal: Terminal) -> None:
    make_version(make_page_flow(make_step(1, compute="{'n': 1}", input_expression="{'n': 1 / 0}")))
    assert run_and_wait(terminal).status == 2
    Run.objects.all().delete()
    process = terminal.begin("run", "colour-theme", "--input", INPUT, "--wait")
    wait_for_run(process).request_cancel()
    done = terminal.end(process)
    assert done.status == 2
    assert "cancelled" in done.err


def test_as_json_the_whole_run_is_given(terminal: Terminal) -> None:
    make_version(make_local())
    done = run_and_wait(terminal, "--json")
    assert (done.status, done.json["status"]) == (0, "succeeded")
    assert [step["name"] for step in done.json["steps"]] == ["Input", "Step 1", "Step 2"]


def test_whoever_stops_waiting_leaves_the_run_alone(terminal: Terminal) -> None:
    make_version(make_local())
    process = terminal.begin("run", "colour-theme", "--input", INPUT, "--wait")
    run = wait_for_run(process)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(f"Run {run.pk}: queued, 0 of 2 steps passed")
    process.send_signal(signal.SIGINT)
    done = terminal.end(process)
    run.refresh_from_db()
    assert (done.status, run.status) == (130, RunStatus.QUEUED)
    assert f"“toolflow cancel {run.pk}” would end it" in done.err


def test_an_input_is_read_from_a_file_and_from_standard_input(terminal: Terminal) -> None:
    make_version(make_local())
    (terminal.folder / "input.json").write_text('{"topic": "from a file"}', encoding="utf-8")
    assert terminal.run("run", "colour-theme", "--input", "@input.json").status == 0
    assert terminal.run("run", "colour-theme", "--input", "-", stdin='{"topic": "piped"}').status == 0
    assert [run.input["topic"] for run in Run.objects.order_by("pk")] == ["from a file", "piped"]


def test_what_the_server_finds_wrong_is_told_with_its_places(terminal: Terminal) -> None:
    schema = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
    make_version(FlowSpec(name="strict", steps=(make_step(1, compute="{'n': 1}"),), input_schema=schema))
    done = terminal.run("run", "strict", "--input", '{"topic": 5}')
    assert done.status == 3
    assert "/input/topic: " in done.err
    assert (
        terminal.run("run", "nowhere", "--input", "{}").err
        == "toolflow: The body has a mistake.\n  /flow: There is no flow “nowhere”.\n"
    )


def test_runs_are_listed_by_filters(terminal: Terminal) -> None:
    failed = make_retried_run(status=RunStatus.FAILED)
    make_run(failed.version)
    done = terminal.run("runs", "--status", "failed,errored", "--flow", "colour-theme")
    header, *rows = done.out.splitlines()
    assert header.split()[:5] == ["RUN", "FLOW", "VERSION", "STATUS", "STEPS"]
    assert [row.split()[:5] for row in rows] == [[str(failed.pk), "colour-theme", "1", "failed", "3/3"]]
    assert terminal.run("runs", "--flow", "nowhere").status == 3


def test_a_list_goes_on_over_pages_up_to_its_limit(terminal: Terminal) -> None:
    version = make_version(make_local())
    Run.objects.bulk_create(
        Run(flow=version.flow, version=version, step_count=2, input={}, model_settings={}) for _ in range(205)
    )
    newest = Run.objects.latest("pk").pk
    numbers = [run["id"] for run in terminal.run("runs", "--limit", "203", "--json").json]
    assert numbers == list(range(newest, newest - 203, -1))


def test_a_run_is_shown_with_each_output_beside_its_own_issues(terminal: Terminal) -> None:
    run = make_retried_run()
    shown = terminal.run("show", str(run.pk), "--issues", "--outputs")
    assert shown.status == 0
    first, second = shown.out.split("Step 1, attempt 1: failed")[1].split("Step 1, attempt 2: passed")
    assert '"red"' in first and "critical hex_format: “red” is no hex colour. (/colours/1)" in first
    assert "#00ff00" in second and "hex_format" not in second.split("Step 2")[0]
    assert "hex_format" not in terminal.run("show", str(run.pk)).out
    assert terminal.run("show", str(run.pk), "--json").json["id"] == run.pk


def test_what_a_model_wrote_commands_no_terminal(terminal: Terminal) -> None:
    run = make_retried_run(end_sentence="Red: \x1b[31m \x9b2J [bold]text[/bold] :smile:")
    for shown in (terminal.run("show", str(run.pk)), terminal.run("show", str(run.pk), "--json")):
        assert not {"\x1b", "\x9b"} & set(shown.out)
        assert "[bold]text[/bold] :smile:" in shown.out


def test_runs_are_cancelled(terminal: Terminal) -> None:
    one, other = make_run(), make_run()
    done = terminal.run("cancel", str(one.pk), str(other.pk))
    assert (done.status, done.out) == (0, f"Run {one.pk} is cancelled.\nRun {other.pk} is cancelled.\n")
    again = terminal.run("cancel", str(one.pk))
    assert (again.status, again.out) == (0, f"Run {one.pk} is cancelled.\n")
    ended = make_run(status="succeeded", ended_at=NOON)
    refused = terminal.run("cancel", str(ended.pk))
    assert (refused.status, refused.err) == (3, f"toolflow: Run {ended.pk} has ended already: it succeeded.\n")


def test_who_may_not_start_runs_is_told_what_is_missing(make_terminal: Callable[..., Terminal]) -> None:
    make_version(make_local())
    done = make_terminal("Viewer").run("run", "colour-theme", "--input", INPUT)
    assert (done.status, done.err) == (3, "toolflow: Your account lacks the permission “runs.add_run”.\n")
