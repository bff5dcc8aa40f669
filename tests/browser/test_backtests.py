"""From the editor to what it would have changed, and back to what was typed."""

from __future__ import annotations

from django.urls import reverse
from playwright.sync_api import Page, expect

from flows.models import Flow, FlowDraft
from runs.models import Backtest
from tests.browser.editor import field, outline, row
from tests.runs.backtest_rows import finish_in_thread, store_history


def test_the_editor_asks_before_anything_is_saved(admin_page: Page) -> None:
    page = admin_page
    store_history()
    flow = Flow.objects.get(name="texts")
    page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    expect(outline(page)).to_be_visible()
    row(page, "Step 1").first.click()
    field(page, "/steps/0/max_retries").fill("1")
    page.get_by_role("button", name="What would this have changed?").click()
    expect(page.get_by_role("heading", name="Backtest")).to_be_visible()
    assert flow.versions.count() == 1
    # What was typed a moment before is the draft that one comes back to.
    assert FlowDraft.objects.get().document["steps"][0]["max_retries"] == 1
    found = finish_in_thread(Backtest.objects.get())
    assert found.document["steps"][0]["max_retries"] == 1
    # The page is brought up to date by itself.
    expect(page.get_by_text("Of 4 runs")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.get_by_role("link", name="Edit draft").click()
    row(page, "Step 1").first.click()
    expect(field(page, "/steps/0/max_retries")).to_have_value("1")
