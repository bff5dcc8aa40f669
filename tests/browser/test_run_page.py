"""Reading a run: parts that fold out, links between issues and lines, and the keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.run_under_way import RunUnderWay
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address

INTERACTIVE = "a[href], button:not([disabled]), summary, input:not([type=hidden]), select, textarea"


def test_what_the_model_saw_is_loaded_when_it_is_opened_and_only_then(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, system_message="You write about tea."))
    issue = make_issue("critical", "It is about coffee.", suggestions=("Write about tea.",))
    run.end_attempt("failed", output={"text": "Coffee!"}, issues=(issue,))
    run.end_attempt(output={"text": "Tea!"})
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url.partition("/runs/")[2]))
    admin_page.goto(run.address)
    second = admin_page.locator("#s1a2")
    part = f"{run.run.pk}/steps/1/attempts/2/request/"
    expect(second.get_by_text("What the model saw")).to_be_visible()
    assert part not in asked

    second.get_by_text("What the model saw").click()
    message = second.locator(".model-message").first
    expect(message).to_contain_text("You write about tea.")
    expect(message).to_contain_text("Current step attempts")
    expect(message).to_contain_text('{"text":"Coffee!"}')
    expect(message).to_contain_text("It is about coffee.")
    expect(message).to_contain_text("Write about tea.")
    expect(second.get_by_text('"topic": "tea"')).to_be_visible()
    for heading in ("System message", "User message", "Tool", "Settings"):
        expect(second.get_by_role("heading", name=heading)).to_be_visible()
    assert "Tea!" not in message.inner_text()

    second.get_by_text("What the model saw").click()
    expect(message).to_be_hidden()
    second.get_by_text("What the model saw").click()
    expect(message).to_be_visible()
    assert asked.count(part) == 1


def test_the_raw_output_and_the_input_of_a_step_fold_out(admin_page: Page) -> None:
    attempt = make_attempt(1, 1, input={"topic": "green tea"}, output={"text": "Tea"}, raw_output={"text": "  tea "})
    admin_page.goto(run_address(make_stored_run(attempt)))
    admin_page.get_by_text("Raw output, before the sanitizer").click()
    expect(admin_page.locator("#s1a1-raw_output")).to_contain_text('"text": "  tea "')
    admin_page.get_by_text("Input of the step").click()
    expect(admin_page.locator("#s1a1-input")).to_contain_text('"topic": "green tea"')


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_javascript_parts_have_pages_of_their_own(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, system_message="You write about tea."))
    run.end_attempt()
    admin_page.goto(run.address)
    admin_page.get_by_text("What the model saw").click()
    admin_page.locator("#s1a1-request").get_by_role("link", name="Open on a page of its own").click()
    expect(admin_page.get_by_role("heading", name="What the model saw")).to_be_visible()
    expect(admin_page.get_by_text("You write about tea.", exact=True)).to_be_visible()
    admin_page.get_by_role("link", name="Back to the run").click()
    expect(admin_page).to_have_url(re.compile(r"#s1a1$"))


def test_an_issue_leads_to_its_line_and_the_line_back_to_its_issue(admin_page: Page) -> None:
    text = {f"line {number}": "x" for number in range(60)}
    issue = make_issue("high", "Not x.", audit="Letters", path="/line 57")
    admin_page.goto(run_address(make_stored_run(make_attempt(1, 1, "failed", output=text, issues=(issue,)))))
    line, shown = admin_page.locator("#s1a1-l59"), admin_page.locator("#s1a1-i0")
    expect(line).to_contain_text('"line 57"')
    expect(line).not_to_be_in_viewport()
    shown.get_by_role("link", name="/line 57, line 59").click()
    expect(line).to_be_in_viewport()
    expect(line).to_have_css("outline-style", "solid")
    line.get_by_role("link", name="Line 59: High: Letters").click()
    expect(shown).to_be_in_viewport()
    expect(admin_page).to_have_url(re.compile("#s1a1-i0$"))


def test_a_link_to_a_part_of_an_earlier_attempt_opens_it(admin_page: Page) -> None:
    run = make_retried_run()
    for anchor in ("s1a1", "s1a1-l4", "s1a1-i0"):
        admin_page.goto("about:blank")
        admin_page.goto(f"{run_address(run)}#{anchor}")
        expect(admin_page.locator("#s1a1")).to_have_attribute("open", "")
        expect(admin_page.locator(f"#{anchor}")).to_be_in_viewport()
        # It is not hidden under the filter, which stays at the top of the window.
        bar = admin_page.locator(".severity-bar").bounding_box()
        part = admin_page.locator(f"#{anchor}").bounding_box()
        assert bar is not None and part is not None and part["y"] >= bar["y"] + bar["height"]


def test_a_link_to_nothing_does_no_harm(admin_page: Page) -> None:
    run = make_retried_run()
    for anchor in ("s9a9", "%zz", "content"):
        admin_page.goto(f"{run_address(run)}#{anchor}")
        expect(admin_page.get_by_role("heading", level=1)).to_be_visible()


def test_whatever_can_be_clicked_can_be_reached_with_the_tab_key_and_shows_its_focus(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    parts = admin_page.locator(INTERACTIVE).locator("visible=true")
    count = parts.count()
    assert count > 30
    parts.evaluate_all("(parts) => { window.wanted = new Set(parts) }")
    for _ in range(count + 5):
        admin_page.keyboard.press("Tab")
        without_outline = admin_page.evaluate("""() => {
            const part = document.activeElement;
            window.wanted.delete(part);
            return part !== document.body && getComputedStyle(part).outlineStyle === "none" ? part.outerHTML : "";
        }""")
        assert without_outline == ""
    assert admin_page.evaluate("[...window.wanted].map((part) => part.outerHTML)") == []


def test_the_keyboard_opens_and_closes_an_attempt(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    first = admin_page.locator("#s1a1")
    first.locator("summary").first.focus()
    admin_page.keyboard.press("Enter")
    expect(first.get_by_text("“red” is no hex colour.")).to_be_hidden()
    admin_page.keyboard.press("Space")
    expect(first.get_by_text("“red” is no hex colour.")).to_be_visible()


def test_the_skip_link_leads_past_the_navigation(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.keyboard.press("Tab")
    skip = admin_page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    admin_page.keyboard.press("Enter")
    admin_page.keyboard.press("Tab")
    expect(admin_page.get_by_role("link", name="Run again")).to_be_focused()
