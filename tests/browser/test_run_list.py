"""From the overview to what runs, failed and is searched for; the list of runs, its filters, selection and exports."""

from __future__ import annotations

import csv
import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, Response, expect

from runs import paging
from runs.facets import add_facets
from runs.models import FacetKind, Run, RunStatus, Worker
from runs.models.run import in_future
from runs.pages.run_list import PAGE_SIZE
from tests.browser.widths import list_sticking_out, open_all_folds, resize
from tests.runs.builders import make_run, make_worker
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run

MINUTE = timedelta(minutes=1)


def test_filters_are_set_and_removed_results_exported_run_again_and_compared(
    admin_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = admin_page
    kept = make_retried_run(labels=["pilot"], cost="0.2", end_sentence="=1+1", is_simulated=False)
    add_facets([(kept.pk, (FacetKind.CODE, "hex_format")), (kept.pk, (FacetKind.LABEL, "pilot"))])
    other = make_stored_run(spec=make_page_flow(name="other", title="Other"))
    rows = page.locator("table.rows tbody tr")
    page.goto("/runs/")
    expect(rows).to_have_count(2)
    more, panel = page.locator("summary", has_text="More filters"), page.locator(".filter-panel")
    more.press("Enter")
    expect(page.locator("datalist#known-code option")).to_have_attribute("value", "hex_format")
    more.press("Escape")
    expect(panel).to_be_hidden()
    expect(more).to_be_focused()
    more.click()
    panel.get_by_label("Issue code").fill("hex_format")
    panel.get_by_label("Succeeded").check()
    panel.get_by_role("button", name="Filter").click()
    # What is empty stays out of the address.
    expect(page).to_have_url(re.compile(r"/runs/\?code=hex_format&status=succeeded$"))
    expect(rows).to_have_count(1)
    menu, link = page.locator("summary", has_text="Export"), page.get_by_role("link", name="CSV")
    menu.click()
    with page.expect_download() as download:
        link.click()
    expect(link).to_be_hidden()
    with download.value.path().open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["end_sentence"], row["cost_usd"]) == (str(kept.pk), "'=1+1", "0.2")
    page.get_by_role("link", name="Remove the filter Issue code hex_format").click()
    expect(rows).to_have_count(2)

    again, boxes = page.get_by_role("button", name="Re-run the selected runs"), page.locator('input[name="run"]')
    expect(again).to_be_disabled()
    boxes.nth(0).check()
    every = page.get_by_label("Select all")
    assert every.evaluate("box => box.indeterminate")
    every.check()
    expect(page.locator("#chosen")).to_have_text("2 selected")
    boxes.nth(0).uncheck()
    again.click()
    page.get_by_role("radio", name="The live version of each flow").check()
    page.locator("main form").get_by_role("button").first.click()
    expect(page.get_by_text("1 run started")).to_be_visible()
    assert Run.objects.get(status=RunStatus.QUEUED).flow == kept.flow

    for width in (1_280, 390):
        resize(page, width)
        page.goto("/runs/")
        # On a phone each run is a card with its steps and issues.
        for part in (".steps svg", ".issues", ".status", ".created"):
            box = page.locator("#run-rows tr").last.locator(part).bounding_box()
            assert box is not None and box["x"] + box["width"] <= width
        compare = page.locator("#compare")
        page.get_by_label(f"Select run #{other.pk}").check()
        expect(compare).to_have_attribute("aria-disabled", "true")
        page.get_by_label(f"Select run #{kept.pk}").check()
        compare.click()
        expect(page).to_have_url(re.compile(rf"/runs/compare/\?a={kept.pk}&b={other.pk}$"))

    # A page keeps searching by itself.
    monkeypatch.setattr(paging, "FIRST_SCAN_SIZE", 0)
    monkeypatch.setattr(paging, "WINDOW", PAGE_SIZE + 1)
    oldest = make_run(cost=2)
    for _ in range(3 * PAGE_SIZE):
        make_run(oldest.version)
    newest = make_run(oldest.version, cost=2)
    page.goto("/runs/?cost=1&status=queued")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(f"#{newest.pk}")
    expect(rows.last).to_contain_text(f"#{oldest.pk}")
    expect(page.get_by_test_id("search-progress")).to_have_count(0)


def wait_for_poll(page: Page, part: str) -> Response:
    """Let the page ask for what is new, now; gives the answer."""
    with page.expect_response(f"**/{part}/live?*") as answer:
        page.clock.run_for(5_000)
    return answer.value


def test_overview_workers_search_box_and_flow_page_lead_to_runs(admin_page: Page) -> None:
    page, keys = admin_page, admin_page.keyboard
    blocked = {"status": RunStatus.FAILED, "blocking_step": 1, "blocking_attempt": 1, "end_reason": "step_failed"}
    first, second, third = (make_retried_run(**blocked, ended_at=in_future(-MINUTE)) for _ in range(3))
    make_worker(host="alpha", in_flight=3)
    page.clock.install()
    page.goto("/")
    workers = page.get_by_role("link", name="All workers")
    workers.focus()
    assert wait_for_poll(page, "overview").status == 204
    begun = {"status": RunStatus.RUNNING, "lease_until": "2100-01-01T00:00:00Z", "started_at": in_future(-MINUTE)}
    Run.objects.filter(pk=make_run(first.version).pk).update(**begun)
    assert wait_for_poll(page, "overview").status == 200
    expect(page.locator("#overview-running")).to_contain_text("0 of 3 steps passed")
    expect(workers).to_be_focused()
    before = page.locator("#overview-running time").inner_text()
    page.clock.run_for(65_000)
    expect(page.locator("#overview-running time")).not_to_have_text(before)
    # One click leads to what blocked the newest run of a cause.
    page.locator(f"#cause-{third.pk}").click()
    expect(page).to_have_url(re.compile(rf"/runs/{third.pk}/steps/1/attempts/1/#i\d+$"))

    page.goto("/workers/")
    table = page.get_by_role("region", name="Workers")
    table.focus()
    Worker.objects.update(heartbeat_at=in_future(-MINUTE))
    assert wait_for_poll(page, "workers").status == 200
    expect(table.get_by_role("row", name="alpha")).to_contain_text("Silent")
    expect(table).to_be_focused()

    hits = page.get_by_role("option")
    for address, key in (("/runs/", "/"), ("/admin/", "Control+k"), ("/guides/", "Meta+k")):
        page.goto(address)
        keys.press(key)
        expect(page.get_by_role("combobox", name="Search or jump to")).to_be_focused()
        keys.type("colour")
        expect(hits.first).to_contain_text("colour-theme")
        expect(hits.first).to_have_attribute("aria-selected", "true")
    keys.press("ArrowDown")
    expect(hits.nth(1)).to_have_attribute("aria-selected", "true")
    keys.press("ArrowUp")
    keys.press("Enter")
    expect(page).to_have_url(re.compile(r"/flows/colour-theme/$"))
    described = page.locator(".grid-chosen p:visible")
    page.locator(f'[data-run="{first.pk}"]').hover()
    expect(described).to_contain_text(f"#{first.pk}")
    page.locator(f'[data-run="{third.pk}"]').focus()
    keys.press("ArrowLeft")
    expect(described).to_contain_text(f"#{second.pk}")
    expect(page.locator('[data-run][tabindex="0"]')).to_have_count(1)
    # A phone shows the newest runs first.
    resize(page, 390)
    open_all_folds(page)
    assert list_sticking_out(page) == []
    page.reload()
    box, shown = page.locator(f'[data-run="{third.pk}"]').bounding_box(), page.locator(".grid-box").bounding_box()
    assert box and shown and shown["x"] <= box["x"] <= shown["x"] + shown["width"]
    page.locator(f'[data-run="{second.pk}"]').focus()
    keys.press("Enter")
    page.wait_for_url(f"**/runs/{second.pk}/**")

    resize(page, 1_280)
    opened, dialog = page.get_by_role("link", name="Search or jump to"), page.get_by_role("dialog")
    opened.click()
    expect(dialog).to_be_visible()
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opened).to_be_focused()
    opened.click()
    keys.type(f"#{first.pk}")
    keys.press("Enter")
    page.wait_for_url(f"**/runs/{first.pk}/**")
    page.goto("/runs/")
    # A slash that is typed stays a slash.
    page.locator("#filter-q").focus()
    keys.type("and/or")
    expect(page.locator("#filter-q")).to_have_value("and/or")
    expect(dialog).to_be_hidden()
