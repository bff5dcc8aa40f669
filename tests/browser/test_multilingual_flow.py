"""The six steps of the contract review, in English, Greek and Arabic, built by hand from an empty page."""

from __future__ import annotations

import json
from typing import Any

from django.urls import reverse
from playwright.sync_api import Locator, Page, expect

from flows.flow_file import parse_flow
from flows.models import FlowVersion
from tests.browser.editor import outline, press_save
from tests.multilingual_flow import FLOW_FILE

MAX_CLICKS = 70
NOTE = "Ξαναγραμμένο στο χέρι · كتب باليد"


class Hand:
    """Clicks and types, and counts the clicks."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.part = page.locator("#editor-part")
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def write(self, label: str, text: str, within: Locator | None = None) -> None:
        """Put text into the field with this label."""
        self.click((within or self.part).get_by_label(label, exact=True))
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)

    def make_schema(self, schema: dict[str, Any]) -> None:
        """Make the schema from an example of it; what has none yet shows that tab."""
        self.click(self.part.get_by_label("An example JSON object"))
        self.page.keyboard.insert_text(json.dumps(build_example(schema)))
        self.click(self.part.get_by_role("button", name="Make the schema"))
        expect(self.part.locator(".schema-table").get_by_role("row")).not_to_have_count(0)

    def add_audit(self, audit: dict[str, Any]) -> None:
        """Add an audit, whose name has the focus then."""
        self.click(self.part.get_by_role("button", name="Add an audit"))
        self.page.keyboard.insert_text(audit["name"])
        item = self.part.locator("[data-audit]").last
        if "severity" in audit:
            severity = item.get_by_role("group", name="Severity")
            self.click(severity.get_by_text(audit["severity"].capitalize(), exact=True))
        self.write("Passes when", audit["rule"], item)
        self.write("Message to people and to the model", audit["message_template"], item)
        if "path" in audit:
            self.click(item.locator("summary"))
            self.write("Path", audit["path"], item)
        if audit.get("fail_at") == "never":
            self.click(item.get_by_role("button", name="Warns"))


def build_example(schema: dict[str, Any]) -> Any:
    """A value that fits a schema of the flow."""
    match schema["type"]:
        case "object":
            return {name: build_example(part) for name, part in schema["properties"].items()}
        case "array":
            return [build_example(schema["items"])]
        case "integer":
            return 1
    return schema.get("enum", ["text"])[0]


def strip(step: dict[str, Any]) -> dict[str, Any]:
    """What of a step is typed word for word."""
    return {name: value for name, value in step.items() if name not in {"output_schema", "tool_name", "max_retries"}}


def test_the_contract_review_is_built_by_hand(admin_page: Page) -> None:
    page, hand = admin_page, Hand(admin_page)
    wanted = parse_flow(FLOW_FILE.read_text()).to_document()
    page.goto(reverse("admin:flows_flow_add"))
    hand.write("Title", wanted["title"])
    hand.write("Description", wanted["description"])
    page.keyboard.press("Alt+ArrowDown")
    hand.make_schema(wanted["input_schema"])
    page.keyboard.press("Alt+ArrowDown")
    for number, step in enumerate(wanted["steps"]):
        if number:
            hand.click(page.get_by_role("button", name="Add a step"))
            page.keyboard.insert_text(step["name"])
        else:
            hand.write("Name of the step", step["name"])
        if "compute" in step:
            hand.click(hand.part.get_by_role("button", name="Local step"))
            hand.write("Compute the output", step["compute"])
        else:
            hand.write("System message", step["system_message"])
        if "input_expression" in step:
            hand.write("Input of the step", step["input_expression"])
        hand.make_schema(step["output_schema"])
        for audit in step.get("audits", ()):
            hand.add_audit(audit)
        if "pass_expression" in step:
            hand.click(hand.part.locator("details", has_text="Custom pass rule").locator("summary"))
            hand.write("Custom pass rule", step["pass_expression"])
    expect(outline(page).locator(".level-2")).to_have_count(6)
    page.get_by_label("What changed?").fill(NOTE)
    press_save(page)
    expect(page.get_by_text("Saved as version 1, which is live")).to_be_visible()
    version = FlowVersion.objects.get()
    assert (version.note, version.spec["name"]) == (NOTE, wanted["name"])
    assert list(map(strip, version.spec["steps"])) == list(map(strip, wanted["steps"]))
    assert hand.clicks <= MAX_CLICKS
