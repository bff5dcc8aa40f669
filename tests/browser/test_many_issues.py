"""An attempt with more issues than one page shows, and a version that can't be read, in a browser."""

from __future__ import annotations

import re

import pytest
from django.db.models import QuerySet
from playwright.sync_api import Page, expect

from flows.models import FlowVersion
from runs.models import Run, RunStatus
from tests.browser.widths import assert_fits_in_both_themes
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import run_address

PHONE = {"width": 390, "height": 800}


def test_all_issues_of_an_attempt_can_be_reached_beside_its_output(admin_page: Page) -> None:
    issues = tuple(make_issue("high", f"Item {place} is wrong.", path=f"/items/{place}") for place in range(450))
    attempt = make_attempt(1, 1, "failed", output={"items": list(range(450))}, issues=issues)
    run = make_stored_run(attempt, status=RunStatus.FAILED)
    admin_page.set_viewport_size(PHONE)
    admin_page.goto(f"/runs/{run.pk}/#s1a1")
    # It is open, and loaded since the reader is there.
    expect(admin_page.locator("#s1a1 .issue")).to_have_count(200)
    assert_fits_in_both_themes(admin_page)
    admin_page.get_by_role("link", name="Further issues").click()
    expect(admin_page.get_by_text("These are issues 201 to 400 of 450, by severity.")).to_be_visible()
    assert_fits_in_both_themes(admin_page)
    admin_page.get_by_role("link", name="Further issues").click()
    expect(admin_page.locator(".issue")).to_have_count(50)
    expect(admin_page.locator("#s1a1-i449")).to_contain_text("Item 449 is wrong.")
    expect(admin_page.get_by_role("link", name="Further issues")).to_have_count(0)
    admin_page.get_by_role("link", name="Graver issues").click()
    expect(admin_page.locator("#s1a1-i200")).to_be_visible()


def test_a_link_to_an_issue_beyond_the_first_page_leads_to_it(admin_page: Page) -> None:
    issues = tuple(make_issue("high", f"Item {place} is wrong.", path=f"/items/{place}") for place in range(250))
    run = make_stored_run(
        make_attempt(1, 1, "failed", output={"items": list(range(250))}, issues=issues),
        make_attempt(1, 2, "failed", output={"items": list(range(250))}, issues=issues[-1:]),
    )
    admin_page.goto(f"/runs/{run.pk}/")
    admin_page.locator("#s1a2-i0").get_by_role("link", name="attempt 1").click()
    expect(admin_page.locator("#s1a1-i249")).to_be_in_viewport()
    # What is on no page that is open is looked for: links of other pages name no page of issues.
    admin_page.goto("about:blank")
    admin_page.goto(f"/runs/{run.pk}/#s1a1-i249")
    expect(admin_page.locator("#s1a1-i249")).to_be_in_viewport()
    admin_page.get_by_role("link", name="Back to the run").click()
    expect(admin_page.locator("#s1a1 > summary")).to_be_in_viewport()


def store_changed_run() -> Run:
    """A run whose second attempt changed the output and has more issues than one page shows."""
    issues = tuple(make_issue("high", f"Item {place} is wrong.", path=f"/items/{place}") for place in range(250))
    return make_stored_run(
        make_attempt(1, 1, "failed", output={"items": []}),
        make_attempt(1, 2, "failed", output={"items": list(range(250))}, issues=issues),
        status=RunStatus.FAILED,
    )


def assert_shows_changes_of_second_page(page: Page, run: Run) -> None:
    """The lines with what changed lead to the issues beside them, and what they changed since is a link to the run."""
    expect(page.locator("#s1a2-output[data-compared]")).to_be_visible()
    expect(page.locator(".issue")).to_have_count(50)
    expect(page.locator("#s1a2-output .line-link")).to_have_count(50)
    expect(page.locator("#s1a2-output .line-link").first).to_have_attribute("href", "#s1a2-i200")
    page.locator(".diff-sum").get_by_role("link", name="attempt 1").click()
    expect(page).to_have_url(re.compile(f"{run_address(run)}#s1a1$"))
    expect(page.locator("#s1a1 > summary")).to_be_in_viewport()


def test_changes_are_shown_beside_the_issues_of_the_same_page(admin_page: Page) -> None:
    run = store_changed_run()
    admin_page.goto(f"{run_address(run)}steps/1/attempts/2/?issues=2")
    admin_page.get_by_role("button", name="Changes since attempt 1").click()
    expect(admin_page).to_have_url(re.compile(r"\?issues=2&diff=s1a2$"))
    assert_shows_changes_of_second_page(admin_page, run)
    # Off again, they are still those of this page.
    admin_page.go_back()
    admin_page.get_by_role("button", name="Changes since attempt 1").click()
    expect(admin_page.locator("#s1a2-output[data-compared]")).to_have_count(0)
    expect(admin_page.locator("#s1a2-output .line-link").first).to_have_attribute("href", "#s1a2-i200")


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_so_they_are_without_scripts(admin_page: Page) -> None:
    run = store_changed_run()
    admin_page.goto(f"{run_address(run)}steps/1/attempts/2/?issues=2")
    admin_page.get_by_role("button", name="Changes since attempt 1").click()
    assert_shows_changes_of_second_page(admin_page, run)


def test_a_run_of_a_version_that_can_not_be_read_has_a_page(admin_page: Page) -> None:
    run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue(),)), make_attempt(1, 2))
    QuerySet(FlowVersion).filter(pk=run.version_id).update(spec={"steps": 7})
    admin_page.goto(f"/runs/{run.pk}/")
    expect(admin_page.get_by_text("This release of ToolFlow can’t read version 1 of the flow")).to_be_visible()
    admin_page.set_viewport_size(PHONE)
    assert_fits_in_both_themes(admin_page)
    admin_page.locator("#s1a2-chip").click()
    expect(admin_page.locator("#s1a2")).to_have_attribute("open", "")
