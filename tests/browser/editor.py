"""The flow editor, as tests of it use it."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from playwright.sync_api import Locator, Page, expect

from flows.portability import load_flow
from tests.engine.builders import make_flow


def open_flow(page: Page, *steps: Any, **fields: Any) -> None:
    """Store a flow of these steps and open its editor."""
    flow = load_flow(document=make_flow(*steps, **fields).to_document()).flow
    page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))


def step(page: Page, name: str) -> Locator:
    """The card of the step with this name."""
    return page.get_by_role("group", name=f"“{name}”").and_(page.locator(".step"))


def tool(card: Locator, name: str) -> Locator:
    """A button of the card itself."""
    return card.locator(":scope > .card-tools").get_by_role("button", name=name, exact=True)


def field(page: Page, name: str) -> Locator:
    return page.locator(f"[name='{name}']")


def press_save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()


def save(page: Page) -> None:
    """Save, and see that it is saved."""
    press_save(page)
    expect(page.get_by_text("Saved as version 2")).to_be_visible()
