"""Trying a step beside the editor, in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from playwright.sync_api import Locator, Page, expect

from flows import providers
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from flows.portability import load_flow
from runs.models import Run
from tests.browser.widths import assert_fits
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.runs.pages.history_builders import make_stored_run

SHORT = AuditSpec(name="Short", rule="output.text.size() < 3", path="'/text'", message="'Too long.'")
SPEC = make_flow(
    make_step(1, system_message="Name a colour."), make_step(2, system_message="Explain it.", audits=(SHORT,))
)


@pytest.fixture(autouse=True)
def _fresh_counts() -> Iterator[None]:
    """How often somebody asked in the tests before is forgotten."""
    cache.clear()
    yield
    cache.clear()


def open_editor(page: Page, spec: FlowSpec = SPEC) -> Run:
    """Open the editor of a flow with one run, in which step 2 failed and was cut off."""
    load_flow(document=spec.to_document())
    too_long = make_issue("critical", "Too long.", audit="Short", path="/text")
    run = make_stored_run(
        make_attempt(1, output={"text": "green"}),
        make_attempt(2, 1, "failed", output={"text": "moss"}, issues=(too_long,)),
        spec=spec,
        status="failed",
    )
    page.goto(f"/admin/flows/flow/{Flow.objects.get().pk}/change/")
    return run


def open_panel(page: Page, step: int = 2) -> Locator:
    """Try a step; gives its panel."""
    card = page.locator(f"#steps-{step - 1}")
    card.locator("details").first.evaluate("(fold) => { fold.open = true }")
    card.get_by_role("button", name="Try this step").click()
    panel = page.get_by_role("dialog")
    expect(panel.get_by_role("heading", name=f"Try step {step} “Step {step}”")).to_be_focused()
    return panel


def test_a_change_is_seen_in_the_request_without_saving(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 1400, "height": 900})
    open_editor(admin_page)
    panel = open_panel(admin_page)
    message = panel.get_by_role("group", name="System message")
    expect(message).to_have_text("Explain it.")
    expect(panel.locator("#try-request")).to_contain_text('"green"')
    # Beside the panel the editor goes on to be used.
    admin_page.locator("#id_steps-1-system_message").fill("Explain it in verse.")
    expect(panel.get_by_text("The page has changed since this was shown.")).to_be_visible()
    panel.get_by_role("button", name="Refresh").click()
    expect(message).to_have_text("Explain it in verse.")
    expect(panel.get_by_role("status")).to_have_text("The request is up to date.")
    expect(panel.get_by_text("The page has changed")).to_be_hidden()
    panel.get_by_label("As", exact=True).focus()
    panel.get_by_label("As", exact=True).select_option(label="The retry after attempt 1 (failed)")
    expect(message).to_contain_text("## Current step attempts")
    expect(panel.get_by_label("As", exact=True)).to_be_focused()
    assert Flow.objects.get().steps.last().system_message == "Explain it."


def test_a_stored_output_is_held_against_a_changed_audit(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 1400, "height": 900})
    run = open_editor(admin_page)
    panel = open_panel(admin_page)
    expect(panel.get_by_label("Output", exact=True)).to_have_value("1")
    verdict = panel.locator("#try-verdict")
    panel.get_by_role("button", name="Check this output").click()
    expect(verdict).to_contain_text("as it was judged in the run")
    expect(verdict.get_by_role("link", name="/text, line 2")).to_be_visible()
    admin_page.locator("#id_steps-1-audits-0-rule").fill("output.text.size() < 9")
    panel.get_by_role("button", name="Check this output").click()
    expect(verdict).to_contain_text("in the run it was: Failed")
    expect(panel.get_by_role("status")).to_have_text(f"Attempt 1 of run {run.pk}: Passed.")
    panel.get_by_label("Output", exact=True).select_option("pasted")
    panel.get_by_label("Pasted output").fill('{"text": "far too long"}')
    panel.get_by_role("button", name="Check this output").click()
    expect(verdict).to_contain_text("The pasted output Failed")
    assert Flow.objects.get().versions.count() == 2


def test_one_call_of_the_model_is_shown_and_its_answer_is_at_hand(
    admin_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "SIMULATED_LATENCY", 0.0)
    open_editor(admin_page)
    panel = open_panel(admin_page)
    sent: list[str] = []
    admin_page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    expect(panel.get_by_text("The simulated model answers: nothing is billed.")).to_be_visible()
    panel.get_by_role("button", name="Send it to the model once").dblclick()
    expect(panel.get_by_role("heading", name="What the model answered")).to_be_visible()
    expect(panel.locator("#try-verdict")).to_contain_text("tokens in")
    assert len(sent) == 1
    expect(panel.get_by_label("Output", exact=True)).to_have_value("pasted")
    expect(panel.get_by_label("Pasted output")).not_to_be_empty()
    panel.get_by_role("button", name="Check this output").click()
    expect(panel.get_by_role("heading", name="The pasted output")).to_be_visible()
    assert Run.objects.count() == 1


def test_typed_values_take_the_place_of_a_run(admin_page: Page) -> None:
    open_editor(admin_page)
    panel = open_panel(admin_page)
    expect(panel.get_by_label("Input of the run")).to_be_hidden()
    panel.get_by_label("Typed values").check()
    panel.get_by_label("Output of step 1 “Step 1”").fill('{"text": "violet"}')
    panel.get_by_role("button", name="Show the request").click()
    expect(panel.locator("#try-request")).to_contain_text('"violet"')
    panel.get_by_label("Output of step 1 “Step 1”").fill("violet")
    panel.get_by_role("button", name="Show the request").click()
    expect(panel.locator("#try-found")).to_contain_text("Line 1, column 1")
    panel.get_by_role("link", name="Output of step 1").click()
    expect(panel.get_by_label("Output of step 1 “Step 1”")).to_be_focused()


def test_the_panel_is_left_by_keyboard(admin_page: Page) -> None:
    open_editor(admin_page)
    for width in (1400, 390):
        admin_page.set_viewport_size({"width": width, "height": 800})
        panel = open_panel(admin_page)
        assert_fits(admin_page)
        assert panel.evaluate("(panel) => panel.scrollWidth <= panel.clientWidth")
        admin_page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        button = admin_page.locator("#steps-1").get_by_role("button", name="Try this step")
        expect(button).to_be_focused()
        admin_page.keyboard.press("Enter")
        expect(panel).to_be_visible()
        panel.get_by_role("button", name="Close").click()
        expect(button).to_be_focused()


def test_a_problem_leads_to_its_field(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 800})
    open_editor(admin_page)
    admin_page.locator("#steps-1 details").first.evaluate("(fold) => { fold.open = true }")
    admin_page.locator("#id_steps-1-name").fill("")
    admin_page.locator("#steps-1").get_by_role("button", name="Try this step").click()
    panel = admin_page.get_by_role("dialog")
    expect(panel.get_by_role("heading", name="1 problem of this step")).to_be_visible()
    panel.get_by_role("link", name="Step 2, name").click()
    expect(panel).to_be_hidden()
    expect(admin_page.locator("#id_steps-1-name")).to_be_focused()
