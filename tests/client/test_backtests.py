"""The gate for CI: a flow file over history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.flow_file import render_flow
from runs.client import backtests
from runs.models import Backtest
from tests.client.conftest import Terminal, answer
from tests.runs.backtest_rows import finish, make_audited_flow, store_history


@pytest.fixture(autouse=True)
def _clock(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtests, "time", terminal.clock)


def write_flow(length: int) -> None:
    Path("flow.yaml").write_text(render_flow(make_audited_flow(length)))


def build_backtest(status: str = "done", **totals: Any) -> dict[str, Any]:
    """What the API says of a backtest."""
    counts = dict.fromkeys(
        ("same", "other_issues", "sooner", "open", "refused", "beyond", "not_reproducible", "removed"), 0
    )
    found = {"runs": 200, **counts, "unknown": 0, "cost_saved": "0", "retries_saved": 0, **totals}
    fields = {"run_count": 200, "percent": 50, "problem": None, "page_url": "http://toolflow.test/backtests/7/"}
    return {"id": 7, "status": status, "sentence": "Of 200 runs …", "totals": found, **fields}


def test_waits_for_the_end_and_prints_the_sentence(site: Terminal) -> None:
    store_history()
    write_flow(5)
    site.clock.on_sleep = lambda: finish(Backtest.objects.get())
    done = site.run("backtest", "flow.yaml", "--limit", "3", "--status", "succeeded,failed")
    assert (done.status, done.out.startswith("Of 3 runs 1 ends the same, 2 sooner (3 retries, $0.0300)")) == (0, True)
    assert Backtest.objects.get().run_count == 3


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ((), 0),
        (("refused>0.5%",), 1),
        (("refused>1%",), 0),
        (("refused>=1%",), 1),
        (("refused > 1",), 1),
        (("refused>2", "unknown>0"), 0),
        (("refused>2", "sooner<1"), 1),
        (("cost_saved<0.5",), 0),
    ],
)
def test_a_condition_that_holds_fails_it(terminal: Terminal, conditions: tuple[str, ...], status: int) -> None:
    write_flow(20)
    terminal.replies = [answer(build_backtest(refused=2, cost_saved="0.75"))]
    options = [part for condition in conditions for part in ("--fail-if", condition)]
    assert terminal.run("backtest", "flow.yaml", *options).status == status


@pytest.mark.parametrize("text", ["refused", "refused>", "refused>x%", "colour>1", "cost_saved>1%", "refused=1", ""])
def test_what_is_no_condition_is_wrong_use(terminal: Terminal, text: str) -> None:
    write_flow(20)
    assert terminal.run("backtest", "flow.yaml", "--fail-if", text).status == 3
    assert terminal.asked == []


@pytest.mark.parametrize("status", ["stopped", "waiting", "working"])
def test_one_that_was_stopped_or_does_not_end_in_time_is_no_success(terminal: Terminal, status: str) -> None:
    write_flow(20)
    terminal.replies = [answer(build_backtest(status))] * 4
    done = terminal.run("backtest", "flow.yaml", "--timeout", "2")
    assert (done.status, terminal.clock.now) == (2, 0 if status == "stopped" else 2)


def test_mistakes_in_the_file_are_reported(site: Terminal) -> None:
    store_history()
    Path("flow.yaml").write_text("name: texts\nsteps:\n- {name: S, compute: nosuch}\n")
    done = site.run("backtest", "flow.yaml")
    assert (done.status, done.out) == (3, "")
    assert "nosuch" in done.err
    assert site.run("backtest", "nosuch.yaml").status == 3
