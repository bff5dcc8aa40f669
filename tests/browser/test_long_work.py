"""Exports and bulk actions as an operator meets them: from the list of runs to what came of it."""

from __future__ import annotations

import csv
from datetime import timedelta
from typing import Any

from playwright.sync_api import Page, expect

from runs.models import BulkAction, Run, RunStatus
from tests.browser.widths import assert_fits_in_both_themes
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow

LIST = "/runs/?flow=colour-theme"


def make_runs(count: int, **fields: Any) -> list[Run]:
    """Ended runs, one an hour, the newest first."""
    version = make_version(make_page_flow())
    values = {"status": RunStatus.FAILED, "ended_at": NOON, **fields}
    hours = (NOON + timedelta(hours=number) for number in range(count))
    return [make_run(version, created_at=hour, **values) for hour in hours][::-1]


def test_chosen_runs_are_counted_and_run_again(admin_page: Page) -> None:
    runs = make_runs(3)
    admin_page.goto(LIST)
    again = admin_page.get_by_role("button", name="Run again the chosen runs")
    expect(admin_page.get_by_text("None chosen")).to_be_visible()
    expect(again).to_be_disabled()
    boxes = admin_page.locator('input[name="run"]')
    boxes.nth(0).check()
    expect(admin_page.get_by_text("1 run chosen")).to_be_visible()
    every = admin_page.get_by_label("Choose all on this page")
    assert every.evaluate("box => box.indeterminate")
    every.check()
    expect(admin_page.get_by_text("3 runs chosen")).to_be_visible()
    boxes.nth(1).uncheck()
    again.click()

    expect(admin_page.get_by_role("heading", name="Run 2 runs again?")).to_be_visible()
    admin_page.get_by_role("radio", name="The live version of its flow").check()
    admin_page.get_by_role("button", name="Run 2 runs again").click()
    expect(admin_page.get_by_text("2 runs started")).to_be_visible()
    admin_page.get_by_role("link", name="Show the new runs").click()
    expect(boxes).to_have_count(2)
    assert Run.objects.filter(pk__gt=runs[0].pk, status=RunStatus.QUEUED).count() == 2


def test_an_export_is_downloaded(admin_page: Page) -> None:
    runs = make_runs(4, end_sentence="=1+1", cost="0.5")
    make_run(make_version())
    admin_page.goto(LIST)
    menu = admin_page.locator("summary", has_text="Export")
    menu.press("Enter")
    admin_page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    expect(admin_page.get_by_role("link", name="CSV")).to_be_hidden()
    menu.click()
    with admin_page.expect_download() as download:
        admin_page.get_by_role("link", name="CSV").click()
    expect(admin_page.get_by_role("link", name="CSV")).to_be_hidden()
    assert download.value.suggested_filename.startswith("toolflow-runs-20")
    with download.value.path().open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["run"]) for row in rows] == [run.pk for run in runs]
    assert {(row["end_sentence"], row["cost_usd"]) for row in rows} == {("'=1+1", "0.5")}


def test_its_pages_fit_a_phone(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 844})
    run = make_runs(1, end_sentence="x" * 300)[0]
    note = {"run": run.pk, "failed": True, "sentence": "Its input doesn’t fit version 1: /" + "deep/" * 80}
    values = {"kind": "run_again", "run_count": 5, "query": "q=" + "long" * 30}
    action = BulkAction.objects.create(token="5eed" * 8, failed=1, notes=[note], **values)
    for address in (
        f"/runs/bulk/run-again/?scope=chosen&run={run.pk}",
        f"/runs/bulk/{action.pk}/",
        "/runs/bulk/",
        "/runs/bulk/cancel/?scope=chosen",
        "/runs/export/csv?status=" + "lost" * 40,
    ):
        admin_page.goto(address)
        assert_fits_in_both_themes(admin_page)
