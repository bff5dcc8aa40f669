"""The list of runs as somebody uses it: filters, what is set, saved views, pages; wide and on a phone."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from runs import paging
from runs.facets import add_facets
from runs.models import FacetKind, SavedView
from runs.pages.run_list import PAGE_SIZE
from tests.browser.widths import assert_fits
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run


def test_filters_are_chosen_shown_and_taken_away(admin_page: Page) -> None:
    kept = make_retried_run(labels=["pilot"], cost="0.2", is_simulated=False)
    add_facets([(kept.pk, (FacetKind.CODE, "hex_format")), (kept.pk, (FacetKind.LABEL, "pilot"))])
    make_stored_run(spec=make_page_flow(name="other", title="Other"))
    rows = admin_page.locator("table.rows tbody tr")
    admin_page.goto("/runs/")
    expect(rows).to_have_count(2)

    more = admin_page.locator("summary", has_text="More filters")
    more.focus()
    more.press("Enter")
    panel = admin_page.locator(".filter-panel")
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
    expect(rows).to_contain_text(f"#{kept.pk}")
    expect(more).to_contain_text("3 set")

    admin_page.get_by_role("link", name="Remove the filter Issue code hex_format").click()
    expect(admin_page.get_by_role("list", name="Filters that are set").get_by_role("listitem")).to_have_count(2)
    rows.get_by_role("link", name="Label pilot").click()
    expect(admin_page).to_have_url(re.compile(r"/runs/\?label=pilot$"))
    expect(rows).to_have_count(1)

    admin_page.get_by_label("Search in inputs, outputs and issues, or a run number").fill("green dragon")
    admin_page.get_by_label("Flow", exact=True).select_option("Other")
    admin_page.get_by_role("button", name="Filter").first.click()
    expect(admin_page.get_by_role("heading", name="No run matches")).to_be_visible()
    admin_page.get_by_role("link", name="Show all runs").click()
    expect(rows).to_have_count(2)


def test_a_view_is_saved_chosen_and_deleted(admin_page: Page) -> None:
    make_stored_run()
    admin_page.goto("/runs/?status=succeeded&tokens=0")
    admin_page.locator("summary", has_text="Save as a view").click()
    admin_page.get_by_label("Name of the view").fill("Used something <b>")
    admin_page.get_by_label("Share with everybody").check()
    admin_page.get_by_role("button", name="Save", exact=True).click()
    expect(admin_page.get_by_text("The view “Used something <b>” is saved and shared with all users.")).to_be_visible()

    admin_page.goto("/runs/")
    views = admin_page.get_by_role("navigation", name="Saved views")
    expect(views.get_by_role("link", name="All runs")).to_have_attribute("aria-current", "page")
    views.get_by_role("link", name="Used something <b>").click()
    expect(admin_page).to_have_url(re.compile(r"\?status=succeeded&tokens=0$"))
    expect(views.get_by_role("link", name="Used something <b>")).to_have_attribute("aria-current", "page")
    admin_page.get_by_role("button", name="Delete this view").click()
    expect(admin_page.get_by_text("The view “Used something <b>” is deleted.")).to_be_visible()
    expect(views).to_have_count(0)


def test_pages_keep_their_filters(admin_page: Page) -> None:
    run = make_run()
    for _ in range(2 * PAGE_SIZE):
        make_run(run.version)
    first = admin_page.locator("table.rows tbody tr").first
    admin_page.goto("/runs/?status=queued")
    newest = first.inner_text()
    admin_page.get_by_role("link", name="Older").click()
    admin_page.get_by_role("link", name="Older").click()
    expect(admin_page.locator("table.rows tbody tr")).to_have_count(1)
    expect(first).to_contain_text(f"#{run.pk}")
    expect(admin_page.get_by_role("link", name="Older")).to_have_count(0)
    admin_page.get_by_role("link", name="Newer").click()
    admin_page.get_by_role("link", name="Newest").click()
    expect(admin_page).to_have_url(re.compile(r"/runs/\?status=queued$"))
    assert first.inner_text().split("\t")[:3] == newest.split("\t")[:3]


def test_the_list_fits_a_phone_with_all_that_can_be_set(admin_page: Page) -> None:
    make_retried_run(labels=["a-label-of-some-length" * 3] * 5)
    ada = User.objects.get()
    for number in range(6):
        SavedView.objects.create(owner=ada, name=f"A view with a long name {number}", query=f"tokens={number}")
    admin_page.set_viewport_size({"width": 390, "height": 800})
    admin_page.goto(f"/runs/?tokens=0&cost=much&label={'w' * 120}&status=failed,errored&flow=colour-theme")
    admin_page.locator("summary", has_text="More filters").click()
    assert_fits(admin_page)
    admin_page.goto("/runs/")
    # Labels stand below the name, each on one line, and the status is in sight beside them.
    name, status = (admin_page.locator(f"tbody {part}").first.bounding_box() for part in (".run-name", ".state"))
    assert name and status and status["x"] + status["width"] <= 390 - 14 - 8
    for label in admin_page.locator("tbody .label").all():
        box = label.bounding_box()
        assert box and box["y"] >= name["y"] + name["height"] and box["height"] < 26
    admin_page.goto("/runs/?tokens=9")
    admin_page.locator("summary", has_text="Save as a view").click()
    assert_fits(admin_page)


def test_a_page_keeps_searching_by_itself(admin_page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "FIRST_LOOK", 0)
    monkeypatch.setattr("runs.filters.WINDOW", PAGE_SIZE + 1)
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
