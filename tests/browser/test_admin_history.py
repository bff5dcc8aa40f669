"""History and the standard pages of the admin in a browser: filters, outputs beside issues, a phone's width."""

from __future__ import annotations

import re

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.urls import reverse
from playwright.sync_api import Page, expect

from runs.access_groups import create_groups
from runs.models import Attempt, Issue, RateLimit
from tests.browser.widths import assert_fits, open_all_folds
from tests.runs.pages.history_builders import make_retried_run

KINDS = ("run", "attempt", "issue")


@pytest.fixture(params=["light", "dark"])
def phone(request: pytest.FixtureRequest, admin_page: Page) -> Page:
    """A window as narrow as a phone's in one of the themes, with somebody signed in who may do everything."""
    admin_page.set_viewport_size({"width": 390, "height": 800})
    admin_page.emulate_media(color_scheme=request.param)
    return admin_page


def find_failed_attempt() -> Attempt:
    """The attempt of a stored run that has an issue."""
    make_retried_run()
    return Issue.objects.get().attempt


def test_history_fits_a_phone(phone: Page) -> None:
    attempt = find_failed_attempt()
    keys = (attempt.step.run_id, attempt.pk, Issue.objects.get().pk)
    for kind, key in zip(KINDS, keys, strict=True):
        phone.goto(reverse(f"admin:runs_{kind}_changelist"))
        expect(phone.locator("#result_list")).to_be_visible()
        assert_fits(phone)
        phone.goto(reverse(f"admin:runs_{kind}_changelist") + "?flow=gone&since=x&p=1")
        expect(phone.locator("#filters").get_by_text("There is no flow “gone”")).to_be_visible()
        assert_fits(phone)
        phone.goto(reverse(f"admin:runs_{kind}_change", args=[key]))
        open_all_folds(phone)
        assert_fits(phone)


def test_pages_that_django_brings_along_fit_a_phone(phone: Page) -> None:
    create_groups(apps=apps, using="default")
    user, group = User.objects.create_user("vera"), Group.objects.get(name="Viewer")
    limit = RateLimit.objects.create(calls_in_flight=5)
    addresses = [reverse(f"admin:{name}") for name in ("index", "password_change")]
    addresses += [reverse("admin:app_list", args=["runs"]), reverse("admin:auth_user_password_change", args=[user.pk])]
    for name, key in (("auth_user", user.pk), ("auth_group", group.pk), ("runs_ratelimit", limit.pk)):
        addresses += [reverse(f"admin:{name}_{page}") for page in ("changelist", "add")]
        addresses += [reverse(f"admin:{name}_{page}", args=[key]) for page in ("change", "history", "delete")]
    for address in addresses:
        phone.goto(address)
        expect(phone.get_by_role("heading", level=1)).to_be_visible()
        open_all_folds(phone)
        assert_fits(phone)


def test_a_list_is_narrowed_step_by_step_on_a_phone(phone: Page) -> None:
    find_failed_attempt()
    phone.goto(reverse("admin:runs_attempt_changelist"))
    expect(phone.locator("#result_list tbody tr")).to_have_count(4)
    expect(phone.get_by_label("Version")).to_be_disabled()
    phone.get_by_label("Flow").select_option("Colour theme")
    phone.get_by_role("button", name="Filter").click()
    expect(phone).to_have_url(re.compile(r"\?flow=colour-theme$"))
    phone.get_by_label("Version").select_option("Version 1")
    phone.get_by_label("Severity").select_option("High and above")
    phone.get_by_label("Code").fill("hex_format")
    phone.get_by_label("Code").press("Enter")
    expect(phone.locator("#result_list tbody tr")).to_have_count(1)
    expect(phone.get_by_label("Severity")).to_have_value("high")
    phone.get_by_label("Code").fill("none_such")
    phone.get_by_role("button", name="Filter").click()
    expect(phone.get_by_text("None of the attempts match these filters.")).to_be_visible()
    phone.get_by_role("link", name="Clear", exact=True).click()
    expect(phone.locator("#result_list tbody tr")).to_have_count(4)


def test_an_issue_leads_to_its_output_and_on_to_its_line_and_the_next_attempt(admin_page: Page) -> None:
    attempt = find_failed_attempt()
    admin_page.goto(reverse("admin:runs_issue_changelist"))
    admin_page.get_by_role("link", name="Step 1, attempt 1").click()
    issue = admin_page.locator(".issue:target")
    expect(issue).to_contain_text("“red” is no hex colour.")
    output, issues = admin_page.locator(".attempt-output"), admin_page.locator(".attempt-issues")
    left, right = output.bounding_box(), issues.bounding_box()
    assert left and right and left["x"] + left["width"] <= right["x"] and left["y"] == right["y"]
    issue.get_by_role("link", name="/colours/1, line 4").click()
    expect(admin_page.locator(".line:target")).to_contain_text('"red"')
    admin_page.locator(".line:target").get_by_role("link").click()
    expect(issue).to_be_visible()
    admin_page.get_by_role("link", name="After: Step 1, attempt 2").click()
    expect(admin_page).to_have_url(re.compile(r"/attempt/\d+/change/$"))
    expect(admin_page.get_by_role("heading", level=1)).to_contain_text("attempt 2")
    admin_page.get_by_role("link", name=f"Run {attempt.step.run_id}").first.click()
    expect(admin_page.locator("#s1a2")).to_be_visible()


def test_an_administrator_adds_a_viewer(admin_page: Page) -> None:
    create_groups(apps=apps, using="default")
    admin_page.goto(reverse("admin:index"))
    admin_page.get_by_role("link", name="Users").click()
    admin_page.get_by_role("link", name="Add user").click()
    admin_page.get_by_label("Username").fill("vera")
    admin_page.get_by_label("Password:", exact=True).fill("correct horse battery")
    admin_page.get_by_label("Password confirmation").fill("correct horse battery")
    admin_page.get_by_role("button", name="Save", exact=True).click()
    admin_page.get_by_label("Viewer").check()
    admin_page.get_by_label("Staff status").check()
    admin_page.get_by_role("button", name="Save", exact=True).click()
    row = admin_page.get_by_role("row").filter(has_text="vera")
    expect(row).to_contain_text("Viewer")
