"""Pages that keep themselves up to date and leave the reader where they are; the API reference."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit

from playwright.sync_api import Page, Response, expect

from runs.models import Run, RunStatus, Worker
from runs.models.run import in_future
from tests.browser.widths import resize
from tests.engine.builders import make_step
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_page_flow, make_retried_run

MINUTE = timedelta(minutes=1)


def wait_for_poll(page: Page, part: str) -> Response:
    """Let the page ask for what is new, now; gives the answer."""
    with page.expect_response(f"**/{part}/live?*") as answer:
        page.clock.run_for(5_000)
    return answer.value


def test_overview_and_workers_keep_up_to_date_and_lead_to_what_failed(admin_page: Page) -> None:
    run = make_retried_run(
        status=RunStatus.FAILED,
        blocking_step=1,
        blocking_attempt=1,
        ended_at=in_future(-MINUTE),
        end_reason="step_failed",
    )
    make_worker(host="alpha", in_flight=3)
    admin_page.clock.install()
    admin_page.goto("/")
    workers = admin_page.get_by_role("link", name="All workers")
    workers.focus()
    assert wait_for_poll(admin_page, "overview").status == 204
    make_worker()
    begun = {"status": RunStatus.RUNNING, "lease_until": "2100-01-01T00:00:00Z", "started_at": in_future(-MINUTE)}
    Run.objects.filter(pk=make_run(run.version).pk).update(**begun)
    assert wait_for_poll(admin_page, "overview").status == 200
    expect(admin_page.locator("#overview-running")).to_contain_text("0 of 3 steps passed")
    expect(admin_page.locator("#overview-queue")).to_contain_text("3 / 400")
    expect(workers).to_be_focused()
    before = admin_page.locator("#overview-running time").inner_text()
    admin_page.clock.run_for(65_000)
    expect(admin_page.locator("#overview-running time")).not_to_have_text(before)
    # One click leads to what blocked the newest run of a cause.
    admin_page.locator(f"#cause-{run.pk}").click()
    expect(admin_page).to_have_url(re.compile(rf"/runs/{run.pk}/steps/1/attempts/1/#i\d+$"))

    admin_page.goto("/workers/")
    table = admin_page.get_by_role("region", name="Workers")
    table.focus()
    make_worker(host="beta", in_flight=5)
    make_run(run.version, available_at=in_future(-10 * MINUTE))
    assert wait_for_poll(admin_page, "workers").status == 200
    expect(table.get_by_role("row", name="beta")).to_be_visible()
    expect(admin_page.locator("#workers-figures")).to_contain_text("8 / ")
    expect(table).to_be_focused()
    Worker.objects.update(heartbeat_at=in_future(-MINUTE))
    wait_for_poll(admin_page, "workers")
    expect(admin_page.get_by_role("status")).to_contain_text("No workers online")
    expect(table.get_by_role("row", name="alpha")).to_contain_text("Silent")


def test_a_run_is_started_in_the_api_reference_and_no_other_server_is_asked(admin_page: Page) -> None:
    make_version(make_page_flow(make_step(1, compute="{'n': 1}")))
    hosts = set()
    admin_page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    resize(admin_page, 390)
    admin_page.goto("/api/v1/docs#/Runs/createRun")
    entry = admin_page.locator("#operations-Runs-createRun")
    entry.get_by_role("button", name="Try it out").click()
    entry.locator("textarea").fill('{"flow": "colour-theme", "input": {"topic": "tea"}}')
    entry.get_by_role("button", name="Execute").click()
    expect(entry.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("202")
    assert Run.objects.get().input == {"topic": "tea"}
    assert {host for host in hosts if host} == {urlsplit(admin_page.url).netloc}
