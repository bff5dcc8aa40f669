"""The colour theme, built in the browser from an empty page: one step with the mouse, the others by keyboard alone.

Then it is run, edited, compared and restored, as an editor does on one afternoon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from flows.engine.differences import compare_specs
from flows.engine.json_values import dump_json
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import freeze_schemas
from flows.examples import load_documents
from flows.flow_file import parse_document
from tests.journeys.first_flow import RUN_PATIENCE
from tests.journeys.installation import Installation, sign_in

MOST_TABS = 80
"""More presses than any way on the page takes."""


@pytest.fixture
def installation(folder: Path) -> Iterator[Installation]:
    """A fresh installation with the simulated model."""
    with Installation(folder) as started:
        yield started


class Typist:
    """Fills in fields: with the mouse, or with the keyboard alone."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def fill(self, name: str, value: Any) -> None:
        """Type a value into the field ``name``; its fold is opened first, as one must."""
        fold = self.page.locator(f"details:not([open]):has([name='{name}']) > summary").last
        if fold.count():
            self.reach_fold(name)
        field = self.page.locator(f"[name='{name}']")
        kind = field.evaluate("field => field.type")
        if kind == "select-one":
            self.choose(name, str(value))
            return
        self.reach(name)
        if kind == "checkbox":
            # A click on it has turned it already.
            if field.is_checked() != value:
                self.page.keyboard.press("Space")
        else:
            self.page.keyboard.press("Control+a")
            self.page.keyboard.insert_text(_write(value))

    def reach(self, name: str) -> None:
        """Put the focus into a field."""
        self.page.locator(f"[name='{name}']").click()

    def choose(self, name: str, value: str) -> None:
        """Choose one of several values."""
        self.page.locator(f"[name='{name}']").select_option(value)

    def reach_fold(self, name: str) -> None:
        """Open the fold that a field lies in."""
        self.page.locator(f"details:not([open]):has([name='{name}']) > summary").last.click()

    def press(self, name: str) -> None:
        """Press the last button of this name."""
        self.page.get_by_role("button", name=name, exact=True).last.click()


class KeyboardTypist(Typist):
    """Never touches the mouse: goes from control to control with Tab."""

    def reach(self, name: str) -> None:
        """Put the focus into a field."""
        self._tab_until("(at, name) => at.name === name", name)

    def choose(self, name: str, value: str) -> None:
        """Choose one of several values, by the beginning of its word."""
        self.reach(name)
        self.page.keyboard.type(value.capitalize())
        expect(self.page.locator(f"[name='{name}']")).to_have_value(value)

    def reach_fold(self, name: str) -> None:
        """Open the fold that a field lies in."""
        script = """(at, name) => at.matches("summary") && !at.parentElement.open
            && at.parentElement.querySelector(`[name="${name}"]`) !== null"""
        self._tab_until(script, name)
        self.page.keyboard.press("Enter")

    def press(self, name: str) -> None:
        """Press the next button of this name."""
        self._tab_until("(at, name) => at.matches('button') && at.innerText.trim() === name", name)
        self.page.keyboard.press("Enter")

    def _tab_until(self, script: str, name: str) -> None:
        for _ in range(MOST_TABS):
            if self.page.evaluate(f"name => ({script})(document.activeElement, name)", name):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {name}.")


def _write(value: Any) -> str:
    if isinstance(value, dict):
        return dump_json(value, indent=2)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def type_flow(page: Page, document: Mapping[str, Any]) -> None:
    """Fill in the page of a new flow as the document says, each field in the order in which it stands on the page."""
    mouse = Typist(page)
    for name in ("title", "name", "description", "input_schema"):
        mouse.fill(name, document[name])
    for index, step in enumerate(document["steps"]):
        mouse.press("Add a step")
        expect(page.locator(f"[name='steps-{index}-name']")).to_be_focused()
        type_step(page, index, step, mouse if index == 0 else KeyboardTypist(page))


def type_step(page: Page, index: int, step: Mapping[str, Any], typist: Typist) -> None:
    """Fill in one step and its audits. The focus is in its first field."""
    for name in list_fields(page, f"steps-{index}-"):
        if name in step:
            typist.fill(f"steps-{index}-{name}", step[name])
        if name == "output_sanitizer":
            for position, audit in enumerate(step.get("audits", ())):
                typist.press("Add an audit")
                prefix = f"steps-{index}-audits-{position}-"
                expect(page.locator(f"[name='{prefix}name']")).to_be_focused()
                for field in list_fields(page, prefix):
                    if field in audit:
                        typist.fill(prefix + field, audit[field])


def list_fields(page: Page, prefix: str) -> list[str]:
    """The fields of a form in the order of the page, those of nested forms left out."""
    names: list[str] = page.locator(f"[name^='{prefix}']:not([type=hidden])").evaluate_all(
        "fields => fields.map((field) => field.name)"
    )
    return [name.removeprefix(prefix) for name in names if "-" not in name.removeprefix(prefix)]


def read_spec(document: dict[str, Any]) -> FlowSpec:
    """The flow of a document as it is published."""
    return freeze_schemas(FlowSpec.from_document(document), registry)


def test_an_editor_builds_the_colour_theme_runs_it_edits_it_compares_and_goes_back(
    page: Page, installation: Installation
) -> None:
    document = {**load_documents()["colour-theme"], "name": "my-theme", "title": "My theme"}
    sign_in(page, installation)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Flows").click()
    page.get_by_role("link", name="New flow").click()
    type_flow(page, document)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 1, which is live: new runs use it.")).to_be_visible()
    exported = installation.manage("export_flow", "my-theme").stdout
    assert compare_specs(read_spec(document), read_spec(parse_document(exported.encode()))) == []

    page.get_by_role("link", name="Start a run").click()
    page.get_by_text("Fill in an example").click()
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_text("All steps passed.")).to_be_visible(timeout=RUN_PATIENCE)
    expect(page.locator("#s2a1")).to_contain_text("Failed")

    page.get_by_role("navigation", name="Main").get_by_role("link", name="Flows").click()
    page.get_by_role("link", name="My theme").click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.locator("#steps-1 summary").first.click()
    page.locator("[name=steps-1-max_retries]").fill("1")
    page.locator("#steps-2").get_by_role("button", name=re.compile("^Move step .* up$|^Move up")).click()
    page.get_by_label("What changed?").fill("Fewer retries.")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2. New runs still use version 1.")).to_be_visible()

    page.get_by_role("link", name="All versions and differences").click()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("main")).to_contain_text("max_retries")
    expect(page.locator("main")).to_contain_text("Fewer retries.")
    page.go_back()
    page.get_by_role("link", name="Restore version 1").click()
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.get_by_role("link", name="Make version 3 live")).to_be_visible()
    assert installation.manage("export_flow", "my-theme").stdout == exported
