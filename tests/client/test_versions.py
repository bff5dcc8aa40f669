"""Versions of a flow from a terminal: which there are, what they say, what they changed, and which one is live."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flows.engine.spec import AuditSpec, FlowSpec
from flows.flow_file import parse_flow
from flows.models import Flow, FlowVersion
from tests.client.conftest import Terminal
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

PICKY = AuditSpec(name="Picky", rule="input.topic != 'tea'", message="'No tea.'")


def make_flow(message: str, title: str = "Colour theme") -> FlowSpec:
    return make_page_flow(make_step(1, system_message=message, audits=(PICKY,)), title=title)


@pytest.fixture
def first() -> FlowVersion:
    """The live version of a flow, which has a later one."""
    first = make_version(make_flow("Draft.\nBe brief."))
    later = make_version(make_flow("Draft.\nBe kind.", "Tones"))
    later.flow.make_live(first)
    return first


def test_they_are_listed_the_newest_first(terminal: Terminal, first: FlowVersion) -> None:
    (terminal.folder / "flow.yaml").write_text(terminal.run("versions", "show", "colour-theme", "1").out, "utf-8")
    assert terminal.run("flows", "push", "--note", "As before", "flow.yaml").status == 0
    header, newest, _, earliest = terminal.run("versions", "list", "colour-theme").out.splitlines()
    assert header.split() == ["VERSION", "CREATED", "BY", "NOTE"]
    assert (newest.split()[0], newest.split()[-3:]) == ("3", ["editor", "As", "before"])
    assert earliest.split()[:2] == ["1", "live"]
    listed = terminal.run("versions", "list", "colour-theme", "--limit", "1", "--json").json
    assert [(one["number"], one["is_live"]) for one in listed] == [(3, False)]


def test_one_is_printed_as_a_flow_file(terminal: Terminal, first: FlowVersion) -> None:
    for arguments, number in ((["1"], 1), ([], 2)):
        done = terminal.run("versions", "show", "colour-theme", *arguments)
        digest = first.flow.versions.get(number=number).digest
        assert (done.status, done.err, parse_flow(done.out).digest) == (0, "", digest)
    found = terminal.run("versions", "show", "colour-theme", "1", "--json").json
    assert (found["number"], found["document"]["name"]) == (1, "colour-theme")


def test_what_changed_is_shown_line_by_line(terminal: Terminal, first: FlowVersion) -> None:
    done = terminal.run("versions", "diff", "colour-theme", "2")
    headline, *lines = done.out.splitlines()
    assert (done.status, headline.startswith("“colour-theme”, version 1 → 2: ")) == (0, True)
    assert lines == [
        "~ flow",
        "    title: Colour theme → Tones",
        "~ step 1 “Step 1”",
        "    system_message:",
        "       Draft.",
        "      -Be brief.",
        "      +Be kind.",
    ]
    assert (
        terminal.run("versions", "diff", "colour-theme", "1", "--against", "2")
        .out.splitlines()[-1]
        .endswith("+Be brief.")
    )
    assert terminal.run("versions", "diff", "colour-theme", "2", "--against", "live", "--json").json["from"] == 1


def test_what_came_and_what_went_is_shown(terminal: Terminal, first: FlowVersion) -> None:
    steps = [make_step(number, compute="{'n': 1}") for number in (1, 2)]
    make_version(make_page_flow(*steps, title="Tones"))
    lines = terminal.run("versions", "diff", "colour-theme", "3").out.splitlines()
    assert "+ step 2 “Step 2”" in lines and "    compute: {'n': 1}" in lines
    assert f"    - audit 1 “{PICKY.name}”" in lines


def test_one_is_made_live(terminal: Terminal, first: FlowVersion) -> None:
    done = terminal.run("versions", "make-live", "colour-theme", "2")
    assert (done.status, done.out) == (0, "“colour-theme”: version 2 is live.\n")
    assert Flow.objects.get().live_version == first.flow.versions.get(number=2)
    assert terminal.run("versions", "make-live", "colour-theme", "1", "--json").json["live_version"] == 1


def test_what_there_is_not_is_told(terminal: Terminal, first: FlowVersion) -> None:
    for arguments, sentence in (
        (["list", "nowhere"], "There is no flow “nowhere”."),
        (["show", "nowhere"], "There is no flow “nowhere”."),
        (["show", "colour-theme", "9"], "There is no version 9 of a flow “colour-theme”."),
        (["diff", "colour-theme", "9"], "There is no version 9 of a flow “colour-theme”."),
        (["diff", "colour-theme", "1"], "Version 1 has none before it; name another one."),
        (["diff", "colour-theme", "2", "--against", "9"], "This flow has no version 9."),
        (["make-live", "colour-theme", "9"], "There is no version 9 of a flow “colour-theme”."),
    ):
        done = terminal.run("versions", *arguments)
        assert (done.status, done.out, done.err) == (3, "", f"toolflow: {sentence}\n")


def test_whoever_may_only_look_makes_none_live(make_terminal: Callable[..., Terminal], first: FlowVersion) -> None:
    viewer = make_terminal("Viewer")
    assert viewer.run("versions", "diff", "colour-theme", "2").status == 0
    done = viewer.run("versions", "make-live", "colour-theme", "2")
    assert (done.status, "lacks the permission “flows.change_flow”" in done.err) == (3, True)
    assert Flow.objects.get().live_version == first
