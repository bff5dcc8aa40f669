"""The API reference: read, and tried out, by somebody at a browser. No console message and no other server is named."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run

ADDRESS = "/api/v1/docs"


@pytest.mark.parametrize("width", [390, 1280])
def test_an_operation_is_tried(admin_page: Page, width: int) -> None:
    run = make_retried_run()
    hosts = set()
    admin_page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    admin_page.set_viewport_size({"width": width, "height": 900})
    admin_page.goto(f"{ADDRESS}#/Runs/getRun")
    entry = admin_page.locator("#operations-Runs-getRun")
    expect(entry).to_contain_text("min_severity")
    entry.get_by_role("button", name="Try it out").click()
    entry.get_by_placeholder("run_id").fill(str(run.pk))
    entry.get_by_role("button", name="Execute").click()
    expect(entry.locator(".live-responses-table")).to_contain_text(f'"id": {run.pk}')
    assert {host for host in hosts if host} == {urlsplit(admin_page.url).netloc}


def test_a_run_is_started_in_the_user_s_session(admin_page: Page) -> None:
    make_version(make_page_flow(make_step(1, compute="{'n': 1}")))
    admin_page.goto(f"{ADDRESS}#/Runs/createRun")
    entry = admin_page.locator("#operations-Runs-createRun")
    entry.get_by_role("button", name="Try it out").click()
    entry.locator("textarea").fill('{"flow": "colour-theme", "input": {"topic": "tea"}}')
    entry.get_by_role("button", name="Execute").click()
    expect(entry.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("202")
    assert Run.objects.get().input == {"topic": "tea"}
