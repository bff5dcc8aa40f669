"""Going through a run with the keyboard, and copying parts of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_attempt, make_step
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address

INTERACTIVE = "a[href], button:not([disabled]), summary, input:not([type=hidden]), select, textarea"


def test_keys_lead_through_attempts_and_steps(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    press = admin_page.keyboard.press
    first = admin_page.locator("#s1a1 > summary")
    first.click()
    press("j")
    expect(admin_page.locator("#s1a2 > summary")).to_be_focused()
    press("k")
    expect(first).to_be_focused()
    # Going there opens nothing; either key does.
    expect(admin_page.locator("#s1a1")).not_to_have_attribute("open", "")
    press("o")
    expect(admin_page.locator("#s1a1")).to_have_attribute("open", "")
    press("Enter")
    expect(admin_page.locator("#s1a1")).not_to_have_attribute("open", "")
    press("]")
    expect(admin_page.locator("#s2-name")).to_be_focused()
    press("j")
    expect(admin_page.locator("#s2a1 > summary")).to_be_focused()
    for key, last in (("[", "#s0-name"), ("]", "#s3-name"), ("k", "#s0a1 > summary")):
        for _ in range(9):
            press(key)
        expect(admin_page.locator(last)).to_be_focused()
    # What the keys lead to is not hidden under the filter, which stays at the top of the window.
    bar, part = (admin_page.locator(name).bounding_box() for name in (".severity-bar", "#s0a1 > summary"))
    assert bar is not None and part is not None and part["y"] >= bar["y"] + bar["height"]
    admin_page.get_by_role("button", name="Hide clean attempts").click()
    first.focus()
    press("j")
    # All attempts after the first are clean.
    expect(first).to_be_focused()


def test_keys_are_left_alone_while_somebody_types_or_means_something_else(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.evaluate("document.querySelector('.severity-bar').append(document.createElement('input'))")
    field = admin_page.locator(".severity-bar > input:not([type])")
    field.focus()
    admin_page.keyboard.type("jko[]?")
    expect(field).to_have_value("jko[]?")
    expect(admin_page.get_by_role("dialog")).to_have_count(0)
    summary = admin_page.locator("#s1a2 > summary")
    summary.focus()
    for key in ("Control+j", "Alt+k", "Meta+o", "x", "J"):
        admin_page.keyboard.press(key)
    expect(summary).to_be_focused()


def test_the_help_says_the_keys_turns_them_off_and_gives_the_focus_back(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    button, dialog = admin_page.get_by_role("button", name="Keys"), admin_page.get_by_role("dialog")
    summary = admin_page.locator("#s1a1 > summary")
    summary.focus()
    admin_page.keyboard.press("?")
    expect(dialog.get_by_text("next, previous attempt")).to_be_visible()
    admin_page.keyboard.press("j")
    dialog.get_by_role("button", name="Close").click()
    expect(summary).to_be_focused()
    button.click()
    admin_page.get_by_label("Use these keys").uncheck()
    admin_page.keyboard.press("Escape")
    expect(button).to_be_focused()
    admin_page.reload()
    summary.focus()
    for key in ("j", "?"):
        admin_page.keyboard.press(key)
    expect(summary).to_be_focused()
    expect(dialog).to_have_count(0)
    button.click()
    admin_page.get_by_label("Use these keys").check()
    admin_page.keyboard.press("Escape")
    summary.focus()
    admin_page.keyboard.press("j")
    expect(admin_page.locator("#s1a2 > summary")).to_be_focused()


def test_whatever_can_be_clicked_can_be_reached_with_the_tab_key_and_shows_its_focus(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.keyboard.press("Tab")
    expect(admin_page.get_by_role("link", name="Skip to content")).to_be_focused()
    admin_page.keyboard.press("Enter")
    admin_page.keyboard.press("Tab")
    expect(admin_page.get_by_role("link", name="Run again")).to_be_focused()
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


@pytest.mark.browser_context_args(permissions=["clipboard-read", "clipboard-write"])
def test_the_command_for_the_api_can_be_copied_also_after_an_update(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    Run.objects.update(input={"topic": "it's <b>tea</b>"})
    follow(admin_page, run.address)
    button = admin_page.get_by_role("button", name="Copy as curl")
    button.click()
    expect(button).to_have_attribute("data-told", "Copied")
    command = admin_page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("curl -X POST http://")
    assert "it\\u0027s <b>tea</b>" in command
    admin_page.clock.run_for(100)
    expect(admin_page.get_by_role("status").get_by_text("Copied")).to_be_attached()
    admin_page.clock.run_for(3_000)
    expect(button).not_to_have_attribute("data-told", "Copied")
    run.end_attempt()
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(button).to_be_focused()
    admin_page.evaluate("navigator.clipboard.writeText('')")
    admin_page.keyboard.press("Enter")
    expect(button).to_have_attribute("data-told", "Copied")
    assert admin_page.evaluate("navigator.clipboard.readText()") == command


def test_copying_works_where_browsers_give_pages_no_clipboard(admin_page: Page) -> None:
    admin_page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    admin_page.goto(run_address(make_stored_run(make_attempt(1, 1, output={"text": '  tea "green"'}))))
    button = admin_page.locator("#s1a1 [data-copies]").first
    source = button.get_attribute("data-copies")
    button.click()
    expect(button).to_have_attribute("data-told", "Copied")
    expect(button).to_be_focused()
    field = admin_page.evaluate_handle("document.body.appendChild(document.createElement('textarea'))").as_element()
    assert field is not None
    field.focus()
    admin_page.keyboard.press("Control+v")
    assert field.input_value().strip() == (admin_page.locator(f"#{source}").text_content() or "").strip()
    assert '"text": "  tea \\"green\\""' in field.input_value()
