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


def test_a_list_is_narrowed_and_leads_to_outputs_beside_issues(admin_page: Page) -> None:
    attempt = find_failed_attempt()
    admin_page.goto(reverse("admin:runs_attempt_changelist"))
    rows = admin_page.locator("#result_list tbody tr")
    expect(rows).to_have_count(4)
    admin_page.get_by_role("link", name="High and above").click()
    admin_page.get_by_label("Code").fill("hex_format")
    admin_page.get_by_label("Code").press("Enter")
    expect(admin_page).to_have_url(re.compile(r"\?severity=high&code=hex_format$"))
    expect(rows).to_have_count(1)
    rows.get_by_role("link", name="attempt 1").click()
    output, issues = admin_page.locator(".attempt-output"), admin_page.locator(".attempt-issues")
    left, right = output.bounding_box(), issues.bounding_box()
    assert left and right and left["x"] + left["width"] <= right["x"] and left["y"] == right["y"]
    issues.get_by_role("link", name="/colours/1, line 4").click()
    expect(admin_page.locator(".line:target")).to_contain_text('"red"')
    admin_page.get_by_role("link", name="After: Step 1, attempt 2").click()
    expect(admin_page.get_by_role("heading", level=1)).to_contain_text("attempt 2")
    admin_page.get_by_role("link", name=f"Run {attempt.step.run_id}").first.click()
    expect(admin_page.locator("#s1a2")).to_be_visible()
