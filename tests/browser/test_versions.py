"""Versions of a flow in a browser: marked, compared, restored; by mouse and keyboard, also on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from flows.examples import load_examples
from flows.models import Flow
from flows.portability import load_flow
from tests.browser.widths import assert_fits, open_all_folds


@pytest.fixture
def flow(transactional_db: None) -> Flow:
    """The colour theme with three versions; the second has a longer message and schema, the third fewer tries."""
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    document = flow.versions.latest("number").flow_spec.to_document()
    roles = document["steps"][1]
    roles["system_message"] = roles["system_message"].replace("4.5:1", "7:1") + "Explain nothing.\n"
    roles["output_schema"]["properties"]["link"] = {"type": "string"}
    roles["output_schema"]["required"].append("link")
    load_flow(document=document, note="More contrast")
    document["steps"][0]["max_retries"] = 1
    load_flow(document=document)
    return flow


def address(flow: Flow, rest: str = "") -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/{rest}"


def test_two_marked_versions_are_compared_and_turned_round(admin_page: Page, flow: Flow) -> None:
    admin_page.goto(f"/admin/flows/flow/{flow.pk}/change/")
    admin_page.get_by_role("link", name="All versions and differences").click()
    expect(admin_page.get_by_text("“Seed colours”: max_retries 3 → 1")).to_be_visible()
    admin_page.get_by_label("From version 1").check()
    admin_page.get_by_role("button", name="Compare").click()
    expect(admin_page.get_by_role("heading", name="Version 1 → version 3")).to_be_visible()
    roles = admin_page.locator(".change", has=admin_page.get_by_role("heading", name="Step 2 “Design-system colours”"))
    expect(roles.locator("mark", has_text="4.5")).to_be_visible()
    expect(roles.locator(".diff-added", has_text='"link": {')).to_be_visible()
    admin_page.get_by_role("link", name="Swap").click()
    expect(admin_page.get_by_role("heading", name="Version 3 → version 1")).to_be_visible()
    expect(roles.locator(".diff-removed", has_text='"link": {')).to_be_visible()


def test_a_version_is_restored_by_keyboard(admin_page: Page, flow: Flow) -> None:
    admin_page.goto(address(flow))
    admin_page.get_by_role("link", name="Restore version 1").focus()
    admin_page.keyboard.press("Enter")
    expect(admin_page.get_by_role("heading", name="Restore version 1?")).to_be_visible()
    admin_page.get_by_label("Note").focus()
    admin_page.keyboard.type("Calmer colours")
    admin_page.keyboard.press("Enter")
    expect(admin_page.get_by_text("Version 1 is restored as version 4.")).to_be_visible()
    expect(admin_page.get_by_text("Restores version 1. Calmer colours")).to_be_visible()
    admin_page.get_by_role("link", name="Make version 4 live").click()
    admin_page.get_by_role("button", name="Make version 4 live").click()
    expect(admin_page.get_by_text("Version 4 is live: new runs use it.")).to_be_visible()
    expect(admin_page.locator("[name=steps-0-max_retries]")).to_have_value("3")


def test_all_pages_of_versions_fit_a_phone(admin_page: Page, flow: Flow) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 800})
    for rest in ("", "compare/?from=1&to=3", "compare/?from=3&to=9", "1/restore/", "3/restore/"):
        admin_page.goto(address(flow, rest))
        open_all_folds(admin_page)
        assert_fits(admin_page)
    admin_page.goto(f"/admin/flows/flowversion/{flow.versions.latest('number').pk}/change/")
    assert_fits(admin_page)
