"""Flows as files beside other code: pulled, checked and pushed from a terminal."""

from __future__ import annotations

from collections.abc import Callable

from flows.engine.spec import FlowSpec
from flows.flow_file import parse_flow
from flows.models import Flow
from tests.client.conftest import Terminal
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow


def make_flow(name: str = "colour-theme", title: str = "Colour theme") -> FlowSpec:
    return make_page_flow(make_step(1, compute="{'n': 1}"), name=name, title=title)


def test_flows_are_listed(terminal: Terminal) -> None:
    make_version(make_flow())
    make_version(make_flow("invoices", "Invoices"))
    Flow.objects.filter(name="invoices").update(is_archived=True)
    header, row = terminal.run("flows", "list").out.splitlines()
    assert header.split() == ["FLOW", "TITLE", "LIVE", "LATEST", "CHANGED"]
    assert row.split()[:5] == ["colour-theme", "Colour", "theme", "1", "1"]
    assert [flow["name"] for flow in terminal.run("flows", "list", "--archived", "--json").json] == ["invoices"]


def test_what_is_pulled_and_pushed_again_changes_nothing(terminal: Terminal) -> None:
    make_version(make_flow())
    make_version(make_flow("invoices", "Invoices"))
    pulled = terminal.run("flows", "pull", "--to", "flows")
    assert pulled.out.splitlines() == ["flows/colour-theme.yaml: version 1", "flows/invoices.yaml: version 1"]
    pushed = terminal.run("flows", "push", "flows/colour-theme.yaml", "flows/invoices.yaml")
    assert (pushed.status, pushed.out.splitlines()) == (
        0,
        [
            "flows/colour-theme.yaml: nothing new, version 1 says the same, live",
            "flows/invoices.yaml: nothing new, version 1 says the same, live",
        ],
    )


def test_a_changed_file_becomes_a_version_which_is_live_if_asked_for(terminal: Terminal) -> None:
    flow = make_version(make_flow()).flow
    terminal.run("flows", "pull", "colour-theme")
    file = terminal.folder / "colour-theme.yaml"
    for title, more, said in (
        ("Colours", (), "stored as version 2; 1 is live"),
        ("Tones", ("--live", "--note", "Better"), "stored as version 3, live"),
    ):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(parse_flow(text).title, title), encoding="utf-8")
        checked = terminal.run("flows", "push", "--check", "colour-theme.yaml")
        assert checked.out.startswith("colour-theme.yaml: would become version ")
        assert terminal.run("flows", "push", "colour-theme.yaml", *more).out == f"colour-theme.yaml: {said}\n"
    assert flow.versions.get(number=3).note == "Better"


def test_the_live_version_is_pulled_if_asked_for(terminal: Terminal) -> None:
    flow = make_version(make_flow()).flow
    latest = make_version(make_flow(title="Later"))
    flow.make_live(flow.versions.get(number=1))
    assert terminal.run("flows", "pull", "--live").out == "colour-theme.yaml: version 1\n"
    assert terminal.run("flows", "pull").out == f"colour-theme.yaml: version {latest.number}\n"


def test_a_new_file_becomes_a_flow(terminal: Terminal) -> None:
    make_version(make_flow())
    terminal.run("flows", "pull")
    text = (terminal.folder / "colour-theme.yaml").read_text(encoding="utf-8")
    (terminal.folder / "other.yaml").write_text(text.replace("colour-theme", "brand-new"), encoding="utf-8")
    assert terminal.run("flows", "push", "other.yaml").out == "other.yaml: stored as version 1, live\n"
    assert Flow.objects.filter(name="brand-new").exists()


def test_mistakes_are_told_by_file_and_place_and_nothing_is_stored(terminal: Terminal) -> None:
    (terminal.folder / "broken.yaml").write_text("name: broken\nsteps: 5\n", encoding="utf-8")
    (terminal.folder / "nonsense.yaml").write_text("a: [", encoding="utf-8")
    checked = terminal.run("flows", "push", "--check", "broken.yaml", "nonsense.yaml")
    assert checked.status == 3
    sentence, *lines = checked.err.splitlines()
    assert sentence == "toolflow: There are mistakes."
    assert any(line.startswith("  broken.yaml: /steps: ") for line in lines)
    assert any(line.startswith("  nonsense.yaml: ") for line in lines)
    pushed = terminal.run("flows", "push", "broken.yaml")
    assert (pushed.status, Flow.objects.count()) == (3, 0)
    assert pushed.err.startswith("toolflow: There are mistakes; nothing is stored.\n  broken.yaml: ")
    missing = terminal.run("flows", "push", "broken.yaml", "missing.yaml")
    assert missing.err == "toolflow: missing.yaml can’t be read: No such file or directory.\n"


def test_what_is_pulled_and_pushed_is_told_as_json(terminal: Terminal) -> None:
    make_version(make_flow())
    file = "colour-theme.yaml"
    for has_changed in (True, False):
        pulled = terminal.run("flows", "pull", "colour-theme", "--json").json
        assert pulled == [{"file": file, "flow": "colour-theme", "version": 1, "has_changed": has_changed}]
    text = (terminal.folder / file).read_text(encoding="utf-8")
    (terminal.folder / file).write_text(text.replace("Colour theme", "Tones"), encoding="utf-8")
    (checked,) = terminal.run("flows", "push", "--check", "--json", file).json
    assert (checked["file"], checked["would_make_version"], checked["warnings"]) == (file, 2, [])
    (pushed,) = terminal.run("flows", "push", "--json", file).json
    assert (pushed["file"], pushed["name"], pushed["made_version"]) == (file, "colour-theme", 2)
    (terminal.folder / "broken.yaml").write_text("name: broken\nsteps: 5\n", encoding="utf-8")
    mixed = terminal.run("flows", "push", "--check", "--json", file, "broken.yaml")
    assert (mixed.status, [one["file"] for one in mixed.json]) == (3, [file])
    assert "broken.yaml: /steps: " in mixed.err


def test_names_that_lead_elsewhere_are_refused(terminal: Terminal) -> None:
    for name in ("../../etc/passwd", "a/b", "a?b"):
        done = terminal.run("flows", "pull", name)
        assert (done.status, "can’t be the name of a flow" in done.err) == (3, True)


def test_whoever_may_only_look_pulls_and_does_not_push(make_terminal: Callable[..., Terminal]) -> None:
    make_version(make_flow())
    viewer = make_terminal("Viewer")
    assert viewer.run("flows", "pull").status == 0
    done = viewer.run("flows", "push", "colour-theme.yaml")
    assert (done.status, "lacks the permission “flows.change_flow”" in done.err) == (3, True)
