"""A flow of twenty steps with ten audits each can be worked with."""

from __future__ import annotations

from django.urls import reverse
from playwright.sync_api import Page, expect

from flows.models import AuditRule, StepDefinition
from flows.portability import load_flow
from tests.browser.test_flow_editor_cards import step, tool
from tests.flows.large_flow import AUDITS, STEPS, make_document


def test_a_large_flow_is_opened_edited_in_its_last_audit_and_saved(admin_page: Page) -> None:
    flow = load_flow(document=make_document()).flow
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    last = step(admin_page, f"Step number {STEPS}")
    last.locator("summary").first.click()
    audit = last.get_by_role("group", name=f"Audit {AUDITS} ")
    audit.get_by_label("Rule").fill("output.total > 0.0")
    admin_page.get_by_role("button", name="Save", exact=True).click()
    expect(admin_page.get_by_text("Saved as version 2")).to_be_visible()
    assert AuditRule.objects.filter(rule="output.total > 0.0").get().name == f"Audit number {AUDITS}"
    assert AuditRule.objects.count() == STEPS * AUDITS
    expect(audit.get_by_label("Rule")).to_have_value("output.total > 0.0")


def test_a_step_of_a_large_flow_is_copied_and_moved(admin_page: Page) -> None:
    flow = load_flow(document=make_document()).flow
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    admin_page.get_by_role("button", name="Collapse all").click()
    tool(step(admin_page, "Step number 1"), "Duplicate").click()
    expect(admin_page.locator(":focus")).to_have_value("Step number 1 copy")
    tool(step(admin_page, "Step number 1 copy"), "Move down").press("Enter")
    expect(admin_page.locator(".editor-status")).to_contain_text("moved to place 3 of 21.")
    admin_page.get_by_role("button", name="Save", exact=True).click()
    expect(admin_page.get_by_text("Saved as version 2")).to_be_visible()
    names = [row.name for row in StepDefinition.objects.filter(flow=flow)[:4]]
    assert names == ["Step number 1", "Step number 2", "Step number 1 copy", "Step number 3"]
    assert StepDefinition.objects.get(name="Step number 3").include_results == [2]
    assert StepDefinition.objects.get(name="Step number 4").include_results == [4]
