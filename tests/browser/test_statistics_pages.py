"""Overview, flows and the page of a flow in a browser: they lead on, keep up to date and fit a phone."""

from __future__ import annotations

import re

from django.utils import timezone
from playwright.sync_api import Page, Response, expect

from flows.models import FlowVersion
from runs.models import Run, RunStatus
from tests.browser.widths import assert_fits, assert_fits_in_both_themes, open_all_folds
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run

PHONE = {"width": 390, "height": 800}


def count_some_days(version: FlowVersion) -> None:
    """Statistics of forty days, with gaps, of a version."""
    for days in (*range(12), 20, *range(30, 40)):
        add_runs(version, day_ago(days), succeeded=30 + days, failed=days, errored=1, first_time=20, cost="1.25")
        add_steps(version, day_ago(days), begun=60, passed=50, first_passed=30, attempts=90, retries=30, cost="1.25")
        add_audit(version, day_ago(days), "Hex colours", fired=9, retried=8, fixed=5, retry_cost="0.1")
        add_issues(version, day_ago(days), "hex_format", audit="Hex colours", issues=9, runs=5)


def wait_for_poll(page: Page) -> Response:
    """Let the page ask for what is new, now; gives the answer."""
    with page.expect_response("**/overview/live?*") as answer:
        page.clock.run_for(5_000)
    return answer.value


def test_the_overview_keeps_up_to_date_and_leads_to_what_failed(admin_page: Page) -> None:
    run = make_retried_run(
        status=RunStatus.FAILED, blocking_step=1, blocking_attempt=2, end_sentence="Step 1 “Step 1” did not pass."
    )
    count_some_days(run.version)
    make_worker(in_flight=3)
    admin_page.clock.install()
    admin_page.goto("/")
    expect(admin_page.get_by_role("heading", name="Today vs. 7-day median")).to_be_visible()
    workers = admin_page.get_by_role("link", name="all workers")
    workers.focus()
    assert wait_for_poll(admin_page).status == 204
    make_worker()
    Run.objects.filter(pk=make_run(run.version).pk).update(
        status=RunStatus.RUNNING, lease_until="2100-01-01T00:00:00Z", started_at=timezone.now()
    )
    assert wait_for_poll(admin_page).status == 200
    expect(admin_page.locator("#overview-running")).to_contain_text("0 of 3 steps passed")
    expect(admin_page.locator("#overview-queue")).to_contain_text("3 of 400")
    expect(workers).to_be_focused()
    before = admin_page.locator("#overview-running time").inner_text()
    admin_page.clock.run_for(65_000)
    expect(admin_page.locator("#overview-running time")).not_to_have_text(before)
    admin_page.get_by_role("link", name="Step 1 “Step 1”").click()
    expect(admin_page).to_have_url(re.compile(rf"/runs/{run.pk}/#s1a2$"))


def test_they_fit_a_phone_with_history_and_without(admin_page: Page) -> None:
    admin_page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a mapping with both sides
    version = make_version(make_page_flow())
    for address in ("/", "/flows/", "/flows/colour-theme/"):
        admin_page.goto(address)
        assert_fits(admin_page)
    make_retried_run(status=RunStatus.ERRORED, end_sentence="It broke" + " and broke" * 40 + "x" * 200)
    make_run(version, status=RunStatus.RUNNING, lease_until="2100-01-01T00:00:00Z")
    count_some_days(version)
    add_audit(version, day_ago(2), "A" * 200, fired=1)
    for address in ("/", "/flows/", "/flows/colour-theme/?period=90d", "/flows/colour-theme/?model=gpt-5-mini"):
        admin_page.goto(address)
        open_all_folds(admin_page)
        assert_fits_in_both_themes(admin_page)
