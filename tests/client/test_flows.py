"""Flows as files, their settings and their versions, against the site itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.engine.spec import FlowSpec
from flows.flow_file import parse_flow
from flows.models import Flow, FlowVersion
from tests.client.conftest import Terminal
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

FILE = Path("colour-theme.yaml")


def make_flow(name: str = "colour-theme", title: str = "Colour theme", message: str = "Be brief.") -> FlowSpec:
    return make_page_flow(make_step(1, system_message=message), name=name, title=title)


@pytest.fixture
def first() -> FlowVersion:
    """The live version of a flow, which has a later one."""
    first = make_version(make_flow())
    make_version(make_flow(title="Tones", message="Be kind.")).flow.make_live(first)
    return first


def test_flows_are_listed(site: Terminal, first: FlowVersion) -> None:
    make_version(make_flow("invoices", "Invoices"))
    Flow.objects.filter(name="invoices").update(is_archived=True)
    header, row = site.run("flows", "list").out.splitlines()
    assert header.split() == ["FLOW", "TITLE", "LIVE", "LATEST", "CHANGED"]
    assert row.split()[:4] == ["colour-theme", "Colour", "theme", "1"]
    assert [flow["name"] for flow in site.run("flows", "list", "--archived", "--json").json] == ["invoices"]


def test_what_is_pulled_and_pushed_again_changes_nothing(site: Terminal, first: FlowVersion) -> None:
    make_version(make_flow("invoices", "Invoices"))
    assert site.run("flows", "pull", "--live", "colour-theme", "--to", "x").out == f"x/{FILE}: version 1\n"
    pulled = site.run("flows", "pull")
    assert pulled.out.splitlines() == [f"{FILE}: version 2", "invoices.yaml: version 1"]
    assert [file["has_changed"] for file in site.run("flows", "pull", "--json").json] == [False, False]
    pushed = site.run("flows", "push", str(FILE), "invoices.yaml", "--json")
    assert (pushed.status, [flow["made_version"] for flow in pushed.json]) == (0, [None, None])


def test_a_changed_file_becomes_a_version_which_is_live_if_asked_for(site: Terminal, first: FlowVersion) -> None:
    site.run("flows", "pull")
    for number, more in ((3, ()), (4, ("--live", "--note", "Better"))):
        FILE.write_text(FILE.read_text("utf-8").replace("Be ", f"Be {number} "), encoding="utf-8")
        assert site.run("flows", "push", "--check", str(FILE)).out == f"{FILE}: would become version {number}\n"
        done = site.run("flows", "push", str(FILE), *more)
        assert (done.status, f"stored as version {number}" in done.out) == (0, True)
    flow = Flow.objects.get()
    assert (flow.live_version, flow.versions.get(number=4).note) == (flow.versions.get(number=4), "Better")
    # A new file becomes a flow.
    Path("other.yaml").write_text(FILE.read_text("utf-8").replace("colour-theme", "brand-new"), "utf-8")
    assert site.run("flows", "push", "other.yaml").status == 0
    assert Flow.objects.filter(name="brand-new").exists()


@pytest.mark.parametrize("more", [(), ("--check",)])
def test_a_mistake_in_one_file_keeps_all_from_being_stored(site: Terminal, more: tuple[str, ...]) -> None:
    Path("good.yaml").write_text("name: good\nsteps:\n- {name: S, compute: input}\n", encoding="utf-8")
    Path("broken.yaml").write_text("name: broken\nsteps: 5\n", encoding="utf-8")
    Path("odd.yaml").write_text("a: [", encoding="utf-8")
    done = site.run("flows", "push", "good.yaml", "broken.yaml", "odd.yaml", *more)
    assert (done.status, Flow.objects.count()) == (3, 0)
    assert "\n  broken.yaml: /steps: " in done.err and "\n  odd.yaml: " in done.err
    assert site.run("flows", "push", "good.yaml", "missing.yaml", *more).err.startswith("toolflow: missing.yaml: ")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "a?b"])
def test_names_that_lead_elsewhere_are_refused(terminal: Terminal, name: str) -> None:
    assert (terminal.run("flows", "pull", name).status, terminal.asked) == (3, [])


def test_settings_are_shown_changed_and_unset(site: Terminal, first: FlowVersion) -> None:
    Flow.objects.update(keep_days=30, max_runs_in_flight=5)
    shown = site.run("flows", "settings", "colour-theme")
    assert {"keep_days: 30", "keep_outputs_days: —"} <= set(shown.out.splitlines())
    changes = ("keep_days=9", "total_cost_budget=12", "max_runs_in_flight=none")
    done = site.run("flows", "settings", "colour-theme", *changes)
    assert (done.status, sorted(done.out.splitlines())) == (
        0,
        ["keep_days: 30 → 9", "max_runs_in_flight: 5 → —", "total_cost_budget: — → 12.00000000"],
    )
    flow = Flow.objects.get()
    assert (flow.keep_days, flow.max_runs_in_flight, str(flow.total_cost_budget)) == (9, None, "12.00000000")
    assert site.run("flows", "settings", "colour-theme", "--json").json["keep_days"] == 9


@pytest.mark.parametrize(
    ("change", "place"),
    [("keep_days", "“keep_days”"), ("colour=red", "/colour: "), ("keep_days=soon", "/keep_days: ")],
)
def test_a_setting_that_can_t_be_is_refused(site: Terminal, first: FlowVersion, change: str, place: str) -> None:
    before = Flow.objects.values().get()
    done = site.run("flows", "settings", "colour-theme", change)
    assert (done.status, done.out, place in done.err) == (3, "", True)
    assert Flow.objects.values().get() == before


def test_versions_are_listed_printed_compared_and_made_live(site: Terminal, first: FlowVersion) -> None:
    header, newest, earliest = site.run("versions", "list", "colour-theme").out.splitlines()
    assert header.split() == ["VERSION", "CREATED", "BY", "NOTE"]
    assert (newest.split()[0], earliest.split()[:2]) == ("2", ["1", "live"])
    for arguments, number in ((["1"], 1), ([], 2)):
        text = site.run("versions", "show", "colour-theme", *arguments).out
        assert parse_flow(text).digest == first.flow.versions.get(number=number).digest
    assert site.run("versions", "show", "colour-theme", "1", "--json").json["document"]["name"] == "colour-theme"
    done = site.run("versions", "make-live", "colour-theme", "2")
    assert (done.status, done.out) == (0, "“colour-theme”: version 2 is live.\n")
    assert Flow.objects.get().live_version == first.flow.versions.get(number=2)


def test_what_a_version_changed_is_a_diff_of_flow_files(site: Terminal, first: FlowVersion) -> None:
    lines = site.run("versions", "diff", "colour-theme").out.splitlines()
    assert lines[0].startswith("“colour-theme”, version 1 → 2: ")
    changed = [line for line in lines[3:] if line[0] in "+-"]
    assert [line[0] + line.split(": ")[1] for line in changed] == ["-Colour theme", "+Tones", "-Be brief.", "+Be kind."]
    assert site.run("versions", "diff", "colour-theme", "2", "--against", "live", "--json").json["from"] == 1
    for arguments in (["1"], ["2", "--against", "9"], ["9"]):
        done = site.run("versions", "diff", "colour-theme", *arguments)
        assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
