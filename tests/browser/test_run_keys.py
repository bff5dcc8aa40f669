"""Going through a run with the keyboard, and copying parts of it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address

INTERACTIVE = "a[href], button:not([disabled]), summary, input:not([type=hidden]), select, textarea"


def test_keys_lead_through_a_run_and_can_be_turned_off(admin_page: Page) -> None:
    run = make_retried_run()
    dialog, pane = admin_page.get_by_role("dialog"), admin_page.locator("#pane")
    admin_page.goto(run_address(run))
    for key, entry, focused in (
        ("j", "s0a1", "s0a1"),
        ("j", "s1a1", "s1a1"),
        ("]", "s1a2", "tab-2"),
        ("]", "s1a2", "tab-2"),
        ("[", "s1a1", "tab-1"),
        ("i", "s1a1", "i0"),
        ("k", "s0a1", "s0a1"),
        ("k", "result", "result"),
        ("k", "result", "result"),
    ):
        admin_page.keyboard.press(key)
        expect(pane).to_have_attribute("data-entry", entry)
        expect(admin_page.locator(f"#{focused}")).to_be_focused()
        expect(admin_page.locator(".outline [aria-current]")).to_have_id(entry)
    expect(admin_page).to_have_url(re.compile(r"\?show=result$"))
    admin_page.go_back()
    expect(pane).to_have_attribute("data-entry", "s0a1")
    # With the filter on, clean entries are passed over.
    admin_page.locator("#issues-only").click()
    admin_page.keyboard.press("j")
    expect(pane).to_have_attribute("data-entry", "s1a1")
    admin_page.keyboard.press("j")
    expect(pane).to_have_attribute("data-entry", "s1a1")

    admin_page.goto(run_address(run))
    # They are left alone while one types or means something else.
    admin_page.evaluate("document.querySelector('.severity-bar').append(document.createElement('input'))")
    field = admin_page.locator(".severity-bar > input:not([type])")
    field.focus()
    admin_page.keyboard.type("jki[]?")
    expect(field).to_have_value("jki[]?")
    expect(dialog).to_have_count(0)
    admin_page.locator("#s1a2").focus()
    for key in ("Control+j", "Alt+k", "Meta+i", "x", "J"):
        admin_page.keyboard.press(key)
    expect(pane).to_have_attribute("data-entry", "result")

    entry = admin_page.locator("#s1a1")
    entry.focus()
    admin_page.keyboard.press("?")
    expect(dialog.get_by_text("next issue")).to_be_visible()
    admin_page.keyboard.press("j")
    admin_page.get_by_label("Use these keys").uncheck()
    dialog.get_by_role("button", name="Close").click()
    expect(entry).to_be_focused()
    expect(pane).to_have_attribute("data-entry", "result")
    admin_page.reload()
    for key in ("j", "?"):
        admin_page.keyboard.press(key)
    expect(pane).to_have_attribute("data-entry", "result")
    expect(dialog).to_have_count(0)
    admin_page.locator("#more-summary").click()
    admin_page.get_by_role("button", name="Keys").click()
    admin_page.get_by_label("Use these keys").check()
    admin_page.keyboard.press("Escape")
    admin_page.keyboard.press("j")
    expect(pane).to_have_attribute("data-entry", "s0a1")


def test_whatever_can_be_clicked_can_be_reached_with_the_tab_key_and_shows_its_focus(admin_page: Page) -> None:
    admin_page.goto(f"{run_address(make_retried_run())}steps/1/attempts/1/")
    admin_page.keyboard.press("Tab")
    expect(admin_page.get_by_role("link", name="Skip to content")).to_be_focused()
    parts = admin_page.locator(INTERACTIVE).locator("visible=true")
    count = parts.count()
    assert count > 30
    parts.evaluate_all("(parts) => { window.wanted = new Set(parts) }")
    admin_page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    for _ in range(count + 8):
        admin_page.keyboard.press("Tab")
        without_outline = admin_page.evaluate("""() => {
            const part = document.activeElement;
            window.wanted.delete(part);
            return part !== document.body && getComputedStyle(part).outlineStyle === "none" ? part.outerHTML : "";
        }""")
        assert without_outline == ""
    assert admin_page.evaluate("[...window.wanted].map((part) => part.outerHTML)") == []


@pytest.mark.browser_context_args(permissions=["clipboard-read", "clipboard-write"])
def test_parts_can_be_copied_also_after_an_update_and_without_a_clipboard(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    Run.objects.update(input={"topic": "it's <b>tea</b>"})
    follow(admin_page, run.address)
    button = admin_page.get_by_role("button", name="Copy as curl")
    admin_page.locator("#more-summary").click()
    button.click()
    expect(button).to_have_attribute("data-told", "Copied")
    command = admin_page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("curl -X POST http://")
    assert "it\\u0027s <b>tea</b>" in command
    admin_page.clock.run_for(3_000)
    run.end_attempt()
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Succeeded")
    expect(button).to_be_focused()
    admin_page.evaluate("navigator.clipboard.writeText('')")
    admin_page.keyboard.press("Enter")
    expect(button).to_have_attribute("data-told", "Copied")
    assert admin_page.evaluate("navigator.clipboard.readText()") == command

    # Where browsers give pages no clipboard.
    admin_page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    issue = make_issue("low", path="/text")
    admin_page.goto(run_address(make_stored_run(make_attempt(1, 1, output={"text": '  tea "green"'}, issues=(issue,)))))
    button = admin_page.locator("#pane [data-copies]").first
    source = button.get_attribute("data-copies")
    button.click()
    expect(button).to_have_attribute("data-told", "Copied")
    expect(button).to_be_focused()
    field = admin_page.evaluate_handle("document.body.appendChild(document.createElement('textarea'))").as_element()
    assert field is not None
    field.focus()
    admin_page.keyboard.press("Control+v")
    assert field.input_value().strip() == (admin_page.locator(f"#{source}").text_content() or "").strip()
