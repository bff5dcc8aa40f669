"""The chips above the attempts, which hide issues by severity."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import run_address

CRITICAL = make_issue("critical", "The name is missing.", audit="Names", path="/name")
LOW = make_issue("low", "The text is long.", audit="Length", path="/text")


def make_mixed_run() -> Run:
    """A run whose first attempt has a critical and a low issue, each at a line of its own; the second one is clean."""
    return make_stored_run(
        make_attempt(1, 1, "failed", output={"name": "", "text": "long"}, issues=(CRITICAL, LOW)), make_attempt(1, 2)
    )


def test_a_chip_hides_issues_and_the_marks_of_their_lines_and_shows_them_again(admin_page: Page) -> None:
    admin_page.goto(run_address(make_mixed_run()))
    admin_page.evaluate("window.isTheSame = true")
    attempt = admin_page.locator("#s1a1")
    line = attempt.locator(".line", has_text='"text"')
    ground = line.evaluate("(line) => getComputedStyle(line).backgroundColor")

    low = admin_page.get_by_role("button", name="Low 1")
    expect(low).to_have_attribute("aria-pressed", "true")
    low.click()
    expect(low).to_have_attribute("aria-pressed", "false")
    expect(attempt.get_by_text("The text is long.")).to_be_hidden()
    expect(attempt.get_by_text("The name is missing.")).to_be_visible()
    expect(attempt.get_by_text("1 low hidden by the filter above.")).to_be_visible()
    expect(line).not_to_have_css("background-color", ground)
    expect(admin_page).to_have_url(re.compile(r"\?hide=low$"))

    low.click()
    expect(attempt.get_by_text("The text is long.")).to_be_visible()
    expect(attempt.get_by_text("hidden by the filter")).to_have_count(2)
    expect(attempt.get_by_text("1 low hidden by the filter above.")).to_be_hidden()
    expect(line).to_have_css("background-color", ground)
    expect(admin_page).to_have_url(re.compile(r"/runs/\d+/$"))
    expect(low).to_be_focused()
    assert admin_page.evaluate("window.isTheSame"), "The page was loaded again."


def test_clean_attempts_can_be_hidden(admin_page: Page) -> None:
    admin_page.goto(run_address(make_mixed_run()))
    admin_page.get_by_role("button", name="Hide clean attempts").click()
    expect(admin_page.locator("#s1a2")).to_be_hidden()
    expect(admin_page.locator("#s1a1")).to_be_visible()


def test_the_filter_is_in_the_address_and_survives_a_reload(admin_page: Page) -> None:
    admin_page.goto(run_address(make_mixed_run()))
    admin_page.get_by_role("button", name="Low 1").click()
    admin_page.get_by_role("button", name="Critical 1").click()
    expect(admin_page).to_have_url(re.compile(r"\?hide=low(%2C|,)critical$"))
    admin_page.reload()
    for name in ("Low 1", "Critical 1"):
        expect(admin_page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "false")
    expect(admin_page.get_by_role("button", name="High 0")).to_have_attribute("aria-pressed", "true")
    expect(admin_page.get_by_text("The text is long.")).to_be_hidden()
    expect(admin_page.get_by_text("The name is missing.")).to_be_hidden()


def test_issues_that_arrive_later_obey_the_filter_and_are_counted(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1))
    follow(admin_page, run.address)
    admin_page.get_by_role("button", name="Low 0").click()
    run.end_attempt("failed", issues=(CRITICAL, LOW))
    wait_for_poll(admin_page)
    expect(admin_page.get_by_text("The name is missing.")).to_be_visible()
    expect(admin_page.get_by_text("The text is long.")).to_be_hidden()
    expect(admin_page.get_by_role("button", name="Low 1")).to_have_attribute("aria-pressed", "false")
    expect(admin_page.get_by_role("button", name="Critical 1")).to_have_attribute("aria-pressed", "true")


def test_the_filter_is_still_there_after_a_look_at_something_else(admin_page: Page) -> None:
    run = make_mixed_run()
    admin_page.goto(run_address(run))
    admin_page.get_by_role("button", name="Low 1").click()
    admin_page.goto("/runs/")
    admin_page.go_back()
    expect(admin_page.get_by_role("button", name="Low 1")).to_have_attribute("aria-pressed", "false")
    admin_page.goto(f"{run_address(run)}steps/1/attempts/1/input/?hide=low")
    admin_page.get_by_role("link", name="Back to the run").click()
    expect(admin_page.get_by_role("button", name="Low 1")).to_have_attribute("aria-pressed", "false")


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_javascript_the_chips_load_the_page_anew(admin_page: Page) -> None:
    admin_page.goto(run_address(make_mixed_run()))
    expect(admin_page.get_by_text("The text is long.")).to_be_visible()
    admin_page.get_by_role("button", name="Low 1").click()
    expect(admin_page.get_by_text("The text is long.")).to_be_hidden()
    admin_page.get_by_role("button", name="Critical 1").click()
    expect(admin_page).to_have_url(re.compile(r"\?hide=critical(%2C|,)low$"))
    admin_page.get_by_role("button", name="Low 1").click()
    expect(admin_page).to_have_url(re.compile(r"\?hide=critical$"))
    expect(admin_page.get_by_text("The text is long.")).to_be_visible()
    expect(admin_page.get_by_text("The name is missing.")).to_be_hidden()
