"""The page of workers in a browser: it keeps itself up to date and leaves the reader where they are."""

from __future__ import annotations

from datetime import timedelta

from playwright.sync_api import Page, Response, expect

from runs.models import Worker
from runs.models.run import in_future
from tests.browser.widths import assert_fits
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_page_flow

MINUTE = timedelta(minutes=1)


def wait_for_poll(page: Page) -> Response:
    """Let the page ask for what is new, now; gives the answer."""
    with page.expect_response("**/workers/live?*") as answer:
        page.clock.run_for(2_000)
    return answer.value


def test_workers_and_queue_are_kept_up_to_date_and_focus_stays(admin_page: Page) -> None:
    make_worker(host="alpha", in_flight=3)
    admin_page.clock.install()
    admin_page.goto("/workers/")
    table = admin_page.get_by_role("region", name="Workers")
    table.focus()
    assert wait_for_poll(admin_page).status == 204
    make_worker(host="beta", in_flight=5)
    make_run(available_at=in_future(-10 * MINUTE))
    assert wait_for_poll(admin_page).status == 200
    expect(table.get_by_role("row", name="beta")).to_be_visible()
    expect(admin_page.locator("#workers-figures")).to_contain_text("8 of 400")
    expect(table).to_be_focused()
    expect(admin_page.get_by_text("No worker is running")).to_be_hidden()
    Worker.objects.update(heartbeat_at=in_future(-MINUTE))
    wait_for_poll(admin_page)
    expect(admin_page.get_by_role("status")).to_contain_text("No worker is running")
    expect(table.get_by_role("row", name="alpha")).to_contain_text("Silent")


def test_the_folded_part_of_the_start_form_opens_and_fits_a_phone(admin_page: Page) -> None:
    version = make_version(make_page_flow(token_budget=20_000))
    admin_page.set_viewport_size({"width": 390, "height": 800})
    admin_page.goto(f"/runs/new/{version.flow.name}/")
    expect(admin_page.get_by_label("Token budget")).to_be_hidden()
    admin_page.get_by_text("More: labels, priority, budgets, time limit").click()
    admin_page.get_by_label("Token budget").fill("x" * 500)
    assert_fits(admin_page)
    admin_page.locator(".button-row").get_by_role("button", name="Start run").click()
    expect(admin_page.get_by_role("alert")).to_contain_text("is not a token budget")
    expect(admin_page.get_by_label("Token budget")).to_have_value("x" * 500)
    assert_fits(admin_page)


def test_it_fits_a_phone_with_workers_and_without(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 800})
    make_run(available_at=in_future(-10 * MINUTE))
    admin_page.goto("/workers/")
    expect(admin_page.get_by_role("heading", name="No worker is at work")).to_be_visible()
    assert_fits(admin_page)
    make_worker(host="a-host-with-a-very-long-name-in-a-very-long-domain.example.com")
    admin_page.goto("/workers/")
    expect(admin_page.locator("#workers-table").get_by_role("row")).to_have_count(2)
    assert_fits(admin_page)
