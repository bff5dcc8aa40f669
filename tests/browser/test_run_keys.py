"""Going through a run with the keyboard, copying parts of it, and links into what is loaded only when it is opened."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address


def test_keys_lead_through_attempts_and_steps(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.locator("#s1a1 > summary").click()
    expect(admin_page.locator("#s1a1")).not_to_have_attribute("open", "")
    press = admin_page.keyboard.press
    press("j")
    expect(admin_page.locator("#s1a2 > summary")).to_be_focused()
    press("k")
    first = admin_page.locator("#s1a1 > summary")
    expect(first).to_be_focused()
    # Going there opens nothing; either key does.
    expect(admin_page.locator("#s1a1")).not_to_have_attribute("open", "")
    press("o")
    expect(admin_page.locator("#s1a1")).to_have_attribute("open", "")
    expect(first).to_be_focused()
    press("Enter")
    expect(admin_page.locator("#s1a1")).not_to_have_attribute("open", "")
    press("]")
    expect(admin_page.locator("#s2-name")).to_be_focused()
    expect(admin_page.locator("#s2-name")).to_be_in_viewport()
    press("j")
    expect(admin_page.locator("#s2a1 > summary")).to_be_focused()
    press("[")
    press("[")
    expect(admin_page.locator("#s1-name")).to_be_focused()
    for _ in range(9):
        press("]")
    expect(admin_page.locator("#s3-name")).to_be_focused()
    # What the keys lead to is not hidden under the filter, which stays at the top of the window.
    for _ in range(9):
        press("k")
    bar, part = (admin_page.locator(name).bounding_box() for name in (".severity-bar", "#s0a1 > summary"))
    assert bar is not None and part is not None and part["y"] >= bar["y"] + bar["height"]


def test_keys_pass_over_attempts_that_are_hidden(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.get_by_role("button", name="Hide clean attempts").click()
    admin_page.locator("#s1a1 > summary").focus()
    admin_page.keyboard.press("j")
    # All attempts after the first are clean.
    expect(admin_page.locator("#s1a1 > summary")).to_be_focused()


def test_an_update_leaves_the_keys_where_they_are(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=3))
    follow(admin_page, run.address)
    admin_page.keyboard.press("]")
    admin_page.keyboard.press("]")
    expect(admin_page.locator("#s1-name")).to_be_focused()
    run.end_attempt("failed")
    wait_for_poll(admin_page)
    expect(admin_page.locator("#s1a2 > summary")).to_contain_text("Running")
    expect(admin_page.locator("#s1-name")).to_be_focused()
    admin_page.keyboard.press("j")
    expect(admin_page.locator("#s1a1 > summary")).to_be_focused()


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


def test_the_help_says_the_keys_and_gives_the_focus_back(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    button = admin_page.get_by_role("button", name="Keys")
    button.click()
    dialog = admin_page.get_by_role("dialog", name="Keys of this page")
    expect(dialog.get_by_text("next, previous attempt")).to_be_visible()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    admin_page.keyboard.press("j")
    expect(dialog).to_be_visible()
    admin_page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()

    admin_page.locator("#s1a1 > summary").focus()
    admin_page.keyboard.press("?")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(admin_page.locator("#s1a1 > summary")).to_be_focused()


def test_whoever_the_keys_get_in_the_way_of_turns_them_off(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.keyboard.press("?")
    admin_page.get_by_label("Use these keys").uncheck()
    admin_page.keyboard.press("Escape")
    admin_page.reload()
    summary = admin_page.locator("#s1a1 > summary")
    summary.focus()
    for key in ("j", "?"):
        admin_page.keyboard.press(key)
    expect(summary).to_be_focused()
    expect(admin_page.get_by_role("dialog")).to_have_count(0)
    admin_page.get_by_role("button", name="Keys").click()
    expect(admin_page.get_by_label("Use these keys")).not_to_be_checked()
    admin_page.get_by_label("Use these keys").check()
    admin_page.keyboard.press("Escape")
    summary.focus()
    admin_page.keyboard.press("j")
    expect(admin_page.locator("#s1a2 > summary")).to_be_focused()


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

    button.focus()
    run.end_attempt()
    with admin_page.expect_response("**/live?*"):
        admin_page.clock.run_for(2_000)
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


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_scripts_there_are_no_buttons_that_do_nothing(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    expect(admin_page.get_by_role("link", name="Run again")).to_be_visible()
    expect(admin_page.get_by_role("button", name="Keys")).to_be_hidden()
    expect(admin_page.locator("[data-copies]").locator("visible=true")).to_have_count(0)


def make_long_run() -> Run:
    """A run whose first attempt is too long to come with its page; an issue points at one of its lines."""
    output = {**{f"line {number}": "x" for number in range(60)}, "rest": "y" * 250_000}
    issue = make_issue("high", "Not x.", audit="Letters", path="/line 57")
    attempts = [make_attempt(1, number, "failed", output=output, issues=(issue,)) for number in (1, 2)]
    spec = make_page_flow(make_step(1, max_retries=3))
    return make_stored_run(
        *attempts, spec=spec, status="failed", blocking_step=1, blocking_attempt=1, end_sentence="Step 1 failed."
    )


@pytest.mark.parametrize("part", ["s1a1-i0", "s1a1-l59"])
def test_a_link_into_an_attempt_that_is_not_loaded_yet_leads_there_once_it_is(admin_page: Page, part: str) -> None:
    admin_page.set_viewport_size({"width": 1_200, "height": 500})
    admin_page.goto(f"{run_address(make_long_run())}#{part}")
    expect(admin_page.locator("#s1a1")).to_have_attribute("open", "")
    expect(admin_page.locator(f"#{part}")).to_be_in_viewport()
    assert admin_page.evaluate("document.querySelector(':target')?.id") == part


def test_the_sentence_of_a_failure_opens_the_attempt_that_it_is_about(admin_page: Page) -> None:
    admin_page.goto(run_address(make_long_run()))
    attempt = admin_page.locator("#s1a1")
    if attempt.get_attribute("open") is not None:
        attempt.locator("summary").first.click()
    admin_page.locator(".verdict a").click()
    expect(attempt).to_have_attribute("open", "")
    expect(attempt.locator("summary").first).to_be_in_viewport()


@pytest.mark.browser_context_args(timezone_id="America/New_York")
def test_times_are_those_of_the_browser_from_the_first_page_on(page: Page) -> None:
    User.objects.create_user("ada", password="secret", is_superuser=True)
    run = make_retried_run(started_at="2026-07-15T22:30:05Z")
    page.goto(run_address(run))
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Started 15 Jul 2026, 18:30:05 EDT")).to_be_visible()
    (cookie,) = [cookie for cookie in page.context.cookies() if cookie["name"] == "toolflow_time_zone"]
    assert (cookie["value"], cookie["sameSite"], cookie["path"]) == ("America/New_York", "Lax", "/")
