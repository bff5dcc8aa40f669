"""The API reference: read, and tried out, by somebody at a browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.widths import assert_fits
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run

ADDRESS = "/api/v1/docs"


def open_entry(page: Page, name: str) -> None:
    page.locator("summary").filter(has_text=name).first.click()


def test_an_operation_tells_what_it_takes_and_gives_and_can_be_tried(admin_page: Page) -> None:
    run = make_retried_run()
    admin_page.goto(ADDRESS)
    expect(admin_page.get_by_role("heading", name="API reference")).to_be_visible()
    open_entry(admin_page, "/runs/{run_id}")
    body = admin_page.locator("#getRun")
    expect(body.get_by_role("region", name="Parameters of getRun")).to_contain_text("min_severity")
    expect(body.locator("pre").first).to_contain_text("Authorization: Bearer $TOOLFLOW_TOKEN")
    body.get_by_label("run_id").fill(str(run.pk))
    body.get_by_label("attempts").select_option("final")
    body.get_by_role("button", name="Try it").click()
    expect(body.get_by_role("status")).to_have_text(f"GET /api/v1/runs/{run.pk}?attempts=final: 200 OK")
    expect(body.get_by_role("region", name="Answer to getRun")).to_contain_text(f'"id": {run.pk}')


def test_a_run_is_started_from_it_once(admin_page: Page) -> None:
    make_version(make_page_flow(make_step(1, compute="{'n': 1}")))
    admin_page.goto(ADDRESS)
    open_entry(admin_page, "Start a run")
    body = admin_page.locator("#createRun")
    expect(body).to_contain_text("This is done for real, in your name.")
    body.get_by_label("Body").fill('{"flow": "colour-theme", "input": {"topic": "tea"}}')
    body.get_by_role("button", name="Send").dblclick()
    expect(body.get_by_role("status")).to_have_text("POST /api/v1/runs: 202 Accepted")
    assert Run.objects.get().input == {"topic": "tea"}


def test_a_link_to_an_object_opens_it(admin_page: Page) -> None:
    admin_page.goto(ADDRESS)
    open_entry(admin_page, "/runs/{run_id}")
    admin_page.locator("#getRun").get_by_role("link", name="Run", exact=True).first.click()
    expect(admin_page.get_by_role("region", name="Fields of Run", exact=True)).to_be_visible()


def test_it_fits_a_phone(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 800})
    admin_page.goto(ADDRESS)
    admin_page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert_fits(admin_page)
