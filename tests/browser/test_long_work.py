"""Exports and bulk actions as an operator meets them: from the list of runs to what came of it."""

from __future__ import annotations

import csv
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from runs.bulk_actions import working
from runs.models import BulkAction, Run, RunStatus
from tests.browser.widths import assert_fits_in_both_themes
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version, make_worker
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


def test_a_long_one_is_followed_and_stopped(admin_page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "LOOK", 2)
    monkeypatch.setattr("runs.bulk_actions.requesting.REQUEST_PATIENCE", 0)
    make_worker()
    make_runs(9, status=RunStatus.QUEUED, ended_at=None)
    admin_page.set_viewport_size({"width": 390, "height": 844})
    admin_page.goto(LIST)
    admin_page.locator("summary", has_text="All that match").click()
    admin_page.get_by_role("button", name="Cancel all that match…").click()
    expect(admin_page.get_by_text("colour-theme")).to_be_visible()
    admin_page.get_by_role("button", name="Cancel 9 runs").click()
    expect(admin_page.get_by_text("2 runs cancelled")).to_be_visible()

    action = BulkAction.objects.get()
    working.work_on(action_id=action.pk, turn=action.turn, patience=0)
    expect(admin_page.get_by_text("4 runs cancelled")).to_be_visible()
    expect(admin_page.get_by_role("progressbar")).to_have_attribute("value", "37")
    admin_page.get_by_role("button", name="Stop here").click()
    expect(admin_page.get_by_text("What was done stays done.")).to_be_visible()
    expect(admin_page.get_by_role("progressbar")).to_have_count(0)
    assert Run.objects.filter(status=RunStatus.QUEUED).count() == 5


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


def test_without_scripts_the_buttons_do_the_same(admin_page: Page, base_url: str) -> None:
    make_runs(2)
    browser = admin_page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False, base_url=base_url) as context:
        context.add_cookies(admin_page.context.cookies())
        page = context.new_page()
        page.goto(LIST)
        page.locator('input[name="run"]').first.check()
        page.get_by_role("button", name="Run again the chosen runs").click()
        page.get_by_role("button", name="Run 1 run again").click()
        expect(page.get_by_text("1 run started")).to_be_visible()


def test_its_pages_fit_a_phone(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 844})
    run = make_runs(1, end_sentence="x" * 300)[0]
    note = {"run": run.pk, "failed": True, "sentence": "Its input doesn’t fit version 1: /" + "deep/" * 80}
    values = {"kind": "run_again", "newest": 9, "oldest": 1, "position": 5, "query": "q=" + "long" * 30}
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
