"""What holds for every page: nothing to complain about for the browser, and no wider than a phone's window
in either theme."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin import site
from django.urls import reverse
from playwright.sync_api import Page, expect

from flows.examples import load_examples
from flows.models import Flow
from runs.models import Attempt, Issue, Run
from tests.browser.run_under_way import RunUnderWay
from tests.browser.widths import assert_fits_in_both_themes, open_all_folds
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_retried_run
from tests.runs.pages.reading import run_address

PHONE = {"width": 390, "height": 800}


@pytest.fixture
def phone(page: Page) -> Page:
    """A window as narrow as a phone's."""
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a mapping with both sides
    return page


def test_pages_of_runs_fit_a_phone(phone: Page, admin_page: Page) -> None:
    running, queued = RunUnderWay(), make_run()
    running.end_attempt("failed")
    ended = make_retried_run(
        end_sentence="Step 1 “Step 1” " + "failed and failed " * 20, blocking_step=1, blocking_attempt=2
    )
    for address in (run_address(ended), running.address, run_address(queued)):
        phone.goto(address)
        open_all_folds(phone)
        assert_fits_in_both_themes(phone)
    for address in ("/runs/", "/runs/?status=failed", f"{run_address(queued)}cancel/", "/runs/999/"):
        phone.goto(address)
        assert_fits_in_both_themes(phone)


def test_the_trail_and_ones_own_account_fit_a_phone(phone: Page, admin_page: Page) -> None:
    make_retried_run()
    for address in ("/trail/", "/trail/?action=signed_in", "/account/"):
        phone.goto(address)
        expect(phone.locator("h1")).to_be_visible()
        assert_fits_in_both_themes(phone)


def test_starting_a_run_fits_a_phone(phone: Page, admin_page: Page) -> None:
    load_examples()
    phone.goto("/runs/new/")
    assert_fits_in_both_themes(phone)
    for name in Flow.objects.values_list("name", flat=True):
        for view in ("?example=1", "?example=1&view=json"):
            phone.goto(f"/runs/new/{name}/{view}")
            assert_fits_in_both_themes(phone)
    phone.goto("/runs/new/colour-theme/")
    phone.get_by_label("Brand").fill("x" * 500)
    phone.get_by_role("button", name="Start run").click()
    expect(phone.get_by_role("alert")).to_be_visible()
    assert_fits_in_both_themes(phone)


def test_signing_in_fits_a_phone(phone: Page) -> None:
    phone.goto("/runs/")
    expect(phone.get_by_role("heading", name="Sign in")).to_be_visible()
    assert_fits_in_both_themes(phone)
    phone.get_by_label("User name").fill("nobody")
    phone.get_by_label("Password").fill("wrong")
    phone.get_by_role("button", name="Sign in").click()
    expect(phone.get_by_role("alert")).to_be_visible()
    assert_fits_in_both_themes(phone)


def test_the_history_in_the_admin_leaves_the_browser_nothing_to_complain_about(admin_page: Page) -> None:
    run = make_retried_run()
    for model in (Run, Attempt, Issue):
        name = f"admin:runs_{model._meta.model_name}"
        admin_page.goto(reverse(f"{name}_changelist"))
        expect(admin_page.locator("#result_list")).to_be_visible()
        admin_page.goto(reverse(f"{name}_change", args=[model._default_manager.latest("pk").pk]))
        expect(admin_page.get_by_role("heading", level=1)).to_be_visible()
    admin_page.goto(reverse("admin:flows_flowversion_change", args=[run.version_id]))
    expect(admin_page.get_by_role("heading", level=1)).to_be_visible()


def test_the_flow_editor_leaves_the_browser_nothing_to_complain_about(admin_page: Page) -> None:
    load_examples()
    admin_page.goto(reverse("admin:flows_flow_changelist"))
    admin_page.get_by_role("link", name="Colour theme").click()
    expect(admin_page.locator(".step:visible")).to_have_count(3)
    admin_page.get_by_role("button", name="Add a step").click()
    expect(admin_page.locator(".step:visible")).to_have_count(4)
    admin_page.locator("#steps-0").get_by_role("button", name="Add an audit").click()
    admin_page.get_by_role("button", name="Save", exact=True).click()
    expect(admin_page.get_by_text(re.compile("Not saved: .* must be mended first"))).to_be_visible()


def test_lists_in_the_admin_leave_the_browser_nothing_to_complain_about(admin_page: Page) -> None:
    admin_page.goto(reverse("admin:index"))
    for model in site._registry:
        admin_page.goto(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"))
        expect(admin_page.get_by_role("heading", level=1).first).to_be_visible()
