"""The flow editor, as tests of it use it."""

from __future__ import annotations

import re
from typing import Any

from django.urls import reverse
from playwright.sync_api import Locator, Page, expect

from flows.models import Flow, FlowVersion
from flows.publishing import publish_flow
from tests.runs.pages.history_builders import make_page_flow


def open_flow(page: Page, *steps: Any, **fields: Any) -> Flow:
    """Store a flow of these steps and open its editor."""
    flow = publish_flow(spec=make_page_flow(*steps, **fields)).flow
    page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    expect(outline(page)).to_be_visible()
    return flow


def outline(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Outline")


def row(page: Page, name: str) -> Locator:
    """A row of the outline."""
    return outline(page).get_by_role("button").filter(has_text=name)


def names(page: Page) -> list[str]:
    """The steps in the outline, in their order."""
    return outline(page).locator(".level-2 .row-name").all_inner_texts()


def field(page: Page, pointer: str) -> Locator:
    """What is typed into at a place of the document."""
    shown = page.locator(f"#editor-part [data-pointer='{pointer}']:not(.ef-switch)")
    return shown.locator(":scope > :is(input, textarea, select)").or_(shown.locator("[data-schema-text]"))


def remarks(page: Page, pointer: str) -> Locator:
    """What is reported at a field."""
    return page.locator(f"#editor-part [data-pointer='{pointer}'] > .remarks")


def go_to(page: Page, pointer: str) -> None:
    """Show the part that a field is in, with its folds open."""
    step = re.match(r"/steps/(\d+)", pointer)
    if step:
        row(page, names(page)[int(step[1])]).first.click()
    else:
        row(page, "Flow and limits").click()
    for audit in page.locator("#editor-part [data-act=audit-open][aria-expanded=false]").all():
        audit.click()
    if pointer.endswith("_schema"):
        page.get_by_role("tab", name="JSON").click()


def press_save(page: Page) -> None:
    page.keyboard.press("Control+s")


def save(page: Page, number: int = 2) -> FlowVersion:
    """Save, see that it is saved, and give the version."""
    press_save(page)
    expect(page.get_by_text(f"Saved as version {number}")).to_be_visible()
    return FlowVersion.objects.filter(number=number).latest("pk")


def wait_for_draft(page: Page) -> None:
    expect(page.locator("#editor-draft")).to_contain_text("draft saved")
