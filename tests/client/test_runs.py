"""Starting a run and waiting for it, listing and showing runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flows.engine.spec import FlowSpec
from runs.filters import PARAMETERS
from runs.models import FacetKind, RunStatus
from tests.api.asking import make_user
from tests.api.long_work import make_view
from tests.client.conftest import NO_RUNS, Terminal, answer
from tests.engine.builders import NOON, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run
from tests.runs.pages.history_builders import make_page_flow, make_retried_run


def make_local(**fields: Any) -> FlowSpec:
    return make_page_flow(make_step(1, compute="{'n': 1}"), make_step(2, compute="{'n': 2}", **fields))


def build_run(status: str = "queued") -> dict[str, Any]:
    """What the API says of run 7, whose first attempt failed."""
    issue = {"severity": "high", "code": "c", "description": "Bad.", "path": "/n", "suggestions": ["Better."]}
    attempt = {"step": 1, "number": 1, "outcome": "failed", "error": None, "failure_reason": "", "issues": [issue]}
    attempt |= {"output": {"title": "Café – it’s 😀"}}
    run = {"id": 7, "flow": "a", "version": 1, "status": status, "page_url": "http://toolflow.test/runs/7/"}
    run |= {"waiting_for": None, "end_sentence": f"It {status}.", "blocking": {"step": 1, "attempt": 1}}
    run |= {"steps_passed": 0, "step_count": 1, "attempt_count": 1, "usage": {"total": 0, "cost": None}}
    return {**run, "steps": [{"name": "Input", "attempts": []}, {"name": "Write", "attempts": [attempt]}]}


def test_a_run_is_started_with_all_that_the_options_say(terminal: Terminal) -> None:
    terminal.replies = [answer(build_run(), 202)]
    options = "--label x --label y --version 2 --priority high --token-budget 9 --cost-budget 0.5 --time-limit 60"
    options += ' --metadata {"m":1} --webhook-url https://x.test/ --idempotency-key k'
    done = terminal.run("run", "a", "--input", '{"topic": "tea"}', *options.split())
    assert done == (0, "Run 7 of “a”, version 1: queued\n", "http://toolflow.test/runs/7/\n")
    (asked,) = terminal.asked
    assert (asked.headers["Idempotency-Key"], asked.headers["Authorization"]) == ("k", "Bearer tf_0123")
    wanted = {"flow": "a", "input": {"topic": "tea"}, "labels": ["x", "y"], "version": 2, "priority": "high"}
    wanted |= {"token_budget": 9, "cost_budget": "0.5", "time_limit": 60, "metadata": {"m": 1}}
    assert json.loads(asked.content) == {**wanted, "webhook_url": "https://x.test/"}


@pytest.mark.parametrize("source", ["@input.json", "-"])
def test_an_input_is_read_from_a_file_or_standard_input(terminal: Terminal, tmp_path: Any, source: str) -> None:
    text = '{"topic": "Café – 😀"}'
    (tmp_path / "input.json").write_text(text, encoding="utf-8")
    terminal.replies = [answer(build_run(), 202)]
    terminal.run("run", "a", "--input", source, stdin=text)
    assert json.loads(terminal.asked[0].content)["input"] == {"topic": "Café – 😀"}


@pytest.mark.parametrize(
    ("source", "name"),
    [("@nowhere", "nowhere "), ("@broken", "broken: "), ("@binary", "binary "), ("[1]", "The input: ")],
)
def test_an_input_that_cannot_be_read_is_named(terminal: Terminal, tmp_path: Any, source: str, name: str) -> None:
    (tmp_path / "broken").write_text('{"topic": ', encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    done = terminal.run("run", "a", "--input", source)
    assert (done.status, done.out, terminal.asked) == (3, "", [])
    assert done.err.startswith(f"toolflow: {name}")


@pytest.mark.parametrize(("status", "exit_status"), [("succeeded", 0), ("failed", 1), ("errored", 2), ("cancelled", 2)])
@pytest.mark.parametrize("as_json", [True, False])
def test_how_a_run_ended_is_the_exit_status(terminal: Terminal, status: str, exit_status: int, as_json: bool) -> None:
    ended = build_run(status)
    terminal.replies = [answer(run) for run in (build_run(), build_run("running"), ended, ended)]
    done = terminal.run("run", "a", "--input", "{}", "--wait", *(["--json"] if as_json else []))
    assert done.status == exit_status
    if as_json:
        assert done.json == ended
    elif status == "succeeded":
        # The last output alone, for the next program.
        assert (done.json, done.err) == ({"title": "Café – it’s 😀"}, "Run 7: succeeded. It succeeded.\n")
    else:
        assert done.out == ""
        for shown in ("Write, attempt 1: failed", '"title"', "  high c: Bad. (/n)", "    → Better.", "/runs/7/"):
            assert shown in done.err


def test_runs_are_listed_by_filters(site: Terminal) -> None:
    failed = make_retried_run(status=RunStatus.FAILED)
    make_run(failed.version)
    header, row = site.run("runs", "--status", "failed,errored", "--flow", "colour-theme").out.splitlines()
    assert header.split()[:5] == ["RUN", "FLOW", "VERSION", "STATUS", "STEPS"]
    assert row.split()[:5] == [str(failed.pk), "colour-theme", "1", "failed", "3/3"]
    assert site.run("runs", "--flow", "nowhere").status == 3


def test_every_filter_has_an_option(terminal: Terminal) -> None:
    terminal.replies = [answer(NO_RUNS)]
    wanted = {"flow": "b", "version": "2", "status": "failed", "severity": "high", "audit": "c", "code": "d"}
    wanted |= {"model": "e", "label": "f", "from": "2026-01-02", "to": "2026-01-03", "cost": "0.1", "tokens": "5"}
    wanted |= {"by": "g", "reason": "cancelled", "accepted": "1"}
    terminal.run("runs", "--search", "a", *(part for name, text in wanted.items() for part in (f"--{name}", text)))
    assert dict(terminal.asked[0].url.params) == {**wanted, "q": "a", "limit": "20"}
    assert {*wanted, "q"} == {*PARAMETERS}


def test_a_saved_view_gives_filters_that_others_beside_it_replace(site: Terminal) -> None:
    other = make_run(make_version(make_version().flow_spec.model_copy(update={"name": "other"})))
    second = make_run(make_version(), status=RunStatus.FAILED, ended_at=NOON)
    make_listed_run(second.version, facets=[(FacetKind.LABEL, "nightly")])
    view = make_view(make_user("editor", "Editor"), "Second", query="flow=example&version=1&status=failed,errored")

    def list_runs(*arguments: str) -> list[int]:
        return [run["id"] for run in site.run("runs", *arguments, "--json").json]

    assert list_runs("--view", "Second") == list_runs("--view", str(view.pk))
    # Versions are counted by flow.
    assert list_runs("--view", "Second", "--flow", "other", "--status", "queued") == [other.pk]
    make_view(make_user("olga"), "Second", is_shared=True)
    for wanted, part in (("Second", f"{view.pk} of editor"), ("Lost", "“Lost”")):
        done = site.run("runs", "--view", wanted)
        assert (done.status, done.out, part in done.err) == (3, "", True)


def test_a_run_is_shown_with_each_output_beside_its_own_issues(site: Terminal) -> None:
    run = make_retried_run()
    shown = site.run("show", str(run.pk), "--issues", "--outputs")
    first, second = shown.out.split("Step 1, attempt 1: failed")[1].split("Step 1, attempt 2: passed")
    assert '"red"' in first and "critical hex_format: “red” is no hex colour. (/colours/1)" in first
    assert "#00ff00" in second and "hex_format" not in second.split("Step 2")[0]
    assert "hex_format" not in site.run("show", str(run.pk)).out
    whole, final = (site.run("show", str(run.pk), "--json", *more).json for more in ((), ("--final",)))
    assert [len(one["steps"][1]["attempts"]) for one in (whole, final)] == [2, 1]


@pytest.mark.parametrize(
    ("call", "permission"),
    [
        ("run colour-theme --input {}", "runs.add_run"),
        ("cancel --all --yes", "runs.change_run"),
        ("flows push colour-theme.yaml", "flows.change_flow"),
        ("flows settings colour-theme keep_days=1", "flows.change_flow"),
        ("versions make-live colour-theme 1", "flows.change_flow"),
    ],
)
def test_a_viewer_reads_and_learns_what_all_else_takes(
    sign_in: Callable[[str], Terminal], call: str, permission: str
) -> None:
    make_run(make_version(make_local()))
    viewer = sign_in("Viewer")
    assert viewer.run("flows", "pull").status == 0
    done = viewer.run(*call.split())
    assert (done.status, permission in done.err) == (3, True)
