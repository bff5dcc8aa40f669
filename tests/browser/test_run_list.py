"""The list of runs as somebody uses it: filters, saved views, pages, chosen runs and exports."""

from __future__ import annotations

import csv
import re

import pytest
from playwright.sync_api import Page, expect

from runs import paging
from runs.facets import add_facets
from runs.models import FacetKind, Run, RunStatus
from runs.pages.run_list import PAGE_SIZE
from tests.browser.widths import resize
from tests.engine.builders import NOON
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run

LIST = "/runs/?flow=colour-theme"


def test_filters_are_chosen_shown_taken_away_and_exported(admin_page: Page) -> None:
    kept = make_retried_run(labels=["pilot"], cost="0.2", end_sentence="=1+1", is_simulated=False)
    add_facets([(kept.pk, (FacetKind.CODE, "hex_format")), (kept.pk, (FacetKind.LABEL, "pilot"))])
    make_stored_run(spec=make_page_flow(name="other", title="Other"))
    rows = admin_page.locator("table.rows tbody tr")
    admin_page.goto("/runs/")
    expect(rows).to_have_count(2)
    more = admin_page.locator("summary", has_text="More filters")
    panel = admin_page.locator(".filter-panel")
    more.press("Enter")
    expect(panel).to_be_visible()
    expect(admin_page.locator("datalist#known-code option")).to_have_attribute("value", "hex_format")
    more.press("Escape")
    expect(panel).to_be_hidden()
    expect(more).to_be_focused()
    more.click()
    panel.get_by_label("Issue code").fill("hex_format")
    panel.get_by_label("Cost over, USD").fill("0.10")
    panel.get_by_label("Succeeded").check()
    panel.get_by_label("Failed").check()
    panel.get_by_role("button", name="Filter").click()
    # What is empty stays out of the address.
    expect(admin_page).to_have_url(re.compile(r"/runs/\?code=hex_format&cost=0.10&status=succeeded&status=failed$"))
    expect(rows).to_have_count(1)
    expect(more).to_contain_text("3 set")
    admin_page.get_by_role("link", name="Remove the filter Issue code hex_format").click()
    expect(admin_page.get_by_role("list", name="Filters that are set").get_by_role("listitem")).to_have_count(2)
    rows.get_by_role("link", name="Label pilot").click()
    expect(admin_page).to_have_url(re.compile(r"/runs/\?label=pilot$"))
    admin_page.get_by_label("Search in inputs, outputs and issues, or a run number").fill("green dragon")
    admin_page.get_by_role("button", name="Filter").first.click()
    expect(admin_page.get_by_role("heading", name="No runs match")).to_be_visible()
    admin_page.get_by_role("link", name="Show all runs").click()
    expect(rows).to_have_count(2)

    admin_page.goto(LIST)
    menu, link = admin_page.locator("summary", has_text="Export"), admin_page.get_by_role("link", name="CSV")
    menu.press("Enter")
    admin_page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    expect(link).to_be_hidden()
    menu.click()
    with admin_page.expect_download() as download:
        link.click()
    expect(link).to_be_hidden()
    assert download.value.suggested_filename.startswith("toolflow-runs-20")
    with download.value.path().open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["end_sentence"], row["cost_usd"]) == (str(kept.pk), "'=1+1", "0.2")


def test_a_page_keeps_searching_by_itself(admin_page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "FIRST_SCAN_SIZE", 0)
    monkeypatch.setattr(paging, "WINDOW", PAGE_SIZE + 1)
    oldest = make_run(cost=2)
    for _ in range(5 * PAGE_SIZE):
        make_run(oldest.version)
    newest = make_run(oldest.version, cost=2)
    rows = admin_page.locator("table.rows tbody tr")
    admin_page.goto("/runs/?cost=1&status=queued")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(f"#{newest.pk}")
    expect(rows.last).to_contain_text(f"#{oldest.pk}")
    expect(admin_page.get_by_test_id("search-progress")).to_have_count(0)


def test_selected_runs_are_counted_run_again_and_compared(admin_page: Page) -> None:
    runs = [make_stored_run(status=RunStatus.FAILED, ended_at=NOON) for _ in range(3)]
    admin_page.goto(LIST)
    again = admin_page.get_by_role("button", name="Re-run the selected runs")
    expect(admin_page.locator("#chosen")).to_have_text("0 selected")
    expect(again).to_be_disabled()
    boxes = admin_page.locator('input[name="run"]')
    boxes.nth(0).check()
    every = admin_page.get_by_label("Select all")
    assert every.evaluate("box => box.indeterminate")
    every.check()
    expect(admin_page.locator("#chosen")).to_have_text("3 selected")
    boxes.nth(1).uncheck()
    again.click()
    admin_page.get_by_role("radio", name="The live version of each flow").check()
    admin_page.locator("main form").get_by_role("button").first.click()
    expect(admin_page.get_by_text("2 runs started")).to_be_visible()
    assert Run.objects.exclude(pk__in=[run.pk for run in runs]).filter(status=RunStatus.QUEUED).count() == 2

    older, newer = runs[0], runs[2]
    for width in (1_280, 390):
        resize(admin_page, width)
        admin_page.goto("/runs/")
        # On a phone each run is a card with its steps and issues.
        for part in (".steps svg", ".issues", ".status", ".created"):
            box = admin_page.locator("#run-rows tr").first.locator(part).bounding_box()
            assert box is not None and box["x"] + box["width"] <= width
        compare = admin_page.locator("#compare")
        admin_page.get_by_label(f"Select run #{newer.pk}").check()
        expect(compare).to_have_attribute("aria-disabled", "true")
        admin_page.get_by_label(f"Select run #{older.pk}").check()
        compare.click()
        expect(admin_page).to_have_url(re.compile(rf"/runs/compare/\?a={older.pk}&b={newer.pk}$"))
