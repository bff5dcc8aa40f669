"""How an installation runs a flow, read and changed from a terminal."""

from __future__ import annotations

from collections.abc import Callable

from flows.models import Flow
from tests.client.conftest import Terminal
from tests.runs.builders import make_version


def test_settings_are_shown(terminal: Terminal) -> None:
    make_version()
    Flow.objects.update(keep_days=30)
    done = terminal.run("flows", "settings", "example")
    rows = dict(line.split() for line in done.out.splitlines()[1:])
    assert (done.status, rows["keep_days"], rows["webhook_url"]) == (0, "30", "—")
    assert "runs are kept 30 days" in done.err
    assert terminal.run("flows", "settings", "example", "--json").json["keep_days"] == 30


def test_what_is_named_is_set_or_taken_away_and_told(terminal: Terminal) -> None:
    make_version()
    Flow.objects.update(max_runs_in_flight=5, total_token_budget=7)
    done = terminal.run(
        *("flows", "settings", "example", "keep_days=30", "total_cost_budget=12", "max_runs_in_flight=none")
    )
    assert (done.status, sorted(done.out.splitlines())) == (
        0,
        ["keep_days: — → 30", "max_runs_in_flight: 5 → —", "total_cost_budget: — → 12.00000000"],
    )
    flow = Flow.objects.get()
    assert (flow.keep_days, flow.max_runs_in_flight, flow.total_token_budget) == (30, None, 7)
    again = terminal.run("flows", "settings", "example", "keep_days=30")
    assert (again.status, again.err) == (0, "Nothing has changed: that is how it was.\n")


def test_what_can_not_be_is_told_and_nothing_is_set(terminal: Terminal) -> None:
    revision = make_version().flow.revision
    for change, sentence in (
        ("keep_days", "toolflow: “keep_days” is no change; it should be like keep_days=30, or keep_days=none.\n"),
        ("colour=red", "  /colour: There is no field of this name"),
        ("keep_days=soon", "  /keep_days: "),
        ("budget_period=none", "  /budget_period: "),
    ):
        done = terminal.run("flows", "settings", "example", change)
        assert (done.status, done.out, sentence in done.err) == (3, "", True), done.err
    assert Flow.objects.get().revision == revision


def test_names_are_told_that_nobody_has(terminal: Terminal) -> None:
    done = terminal.run("flows", "settings", "nowhere", "keep_days=1")
    assert (done.status, done.err) == (3, "toolflow: There is no flow “nowhere”.\n")


def test_whoever_may_only_look_sets_nothing(make_terminal: Callable[..., Terminal]) -> None:
    make_version()
    viewer = make_terminal("Viewer")
    assert viewer.run("flows", "settings", "example").status == 0
    done = viewer.run("flows", "settings", "example", "keep_days=1")
    assert (done.status, "lacks the permission “flows.change_flow”" in done.err) == (3, True)
