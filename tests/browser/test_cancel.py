"""Cancelling a run: it is asked first, and the page shows how it ends."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from flows.engine.history import Outcome
from runs.models import EndReason, RunStatus
from runs.recorder import end_held_run
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.runs.builders import make_run
from tests.runs.pages.reading import run_address


def test_a_running_run_is_cancelled_by_its_worker_and_keeps_its_attempts(admin_page: Page) -> None:
    run = RunUnderWay()
    run.end_attempt("failed")
    follow(admin_page, run.address)
    admin_page.get_by_role("link", name="Cancel").click()
    expect(admin_page.get_by_role("heading", name=f"Cancel Colour theme #{run.run.pk}?")).to_be_visible()
    admin_page.get_by_role("button", name="Cancel the run").click()
    expect(admin_page.get_by_text("The run is being cancelled.")).to_be_visible()
    expect(admin_page.locator("h1")).to_contain_text("Cancelling")
    expect(admin_page.get_by_role("link", name="Cancel")).to_have_count(0)

    end_held_run(run.run, RunStatus.CANCELLED, EndReason.CANCELLED, "The run was cancelled.", outcome=Outcome.CANCELLED)
    wait_for_poll(admin_page)
    expect(admin_page.locator("h1")).to_contain_text("Cancelled")
    expect(admin_page.locator("#s1a1 > summary")).to_contain_text("Failed")
    expect(admin_page.locator("#s1a2 > summary")).to_contain_text("Cancelled")


def test_whoever_has_second_thoughts_lets_it_run(admin_page: Page) -> None:
    run = make_run()
    admin_page.goto(run_address(run))
    admin_page.get_by_role("link", name="Cancel").click()
    admin_page.get_by_role("link", name="Let it run").click()
    expect(admin_page).to_have_url(re.compile(rf"/runs/{run.pk}/$"))
    expect(admin_page.locator("h1")).to_contain_text("Queued")


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_javascript_a_run_is_cancelled_too(admin_page: Page) -> None:
    run = make_run()
    admin_page.goto(run_address(run))
    admin_page.get_by_role("link", name="Cancel").click()
    admin_page.get_by_role("button", name="Cancel the run").click()
    expect(admin_page.get_by_text("The run is cancelled.")).to_be_visible()
    expect(admin_page.locator("h1")).to_contain_text("Cancelled")
