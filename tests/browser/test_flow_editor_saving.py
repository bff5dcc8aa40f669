"""Saving in the flow editor: mistakes stand where they are, and nothing is overwritten that one did not see."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser, Locator, Page, expect

from flows.models import Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from tests.browser.widths import assert_fits, open_all_folds
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import EditorPage

AUDITS = [{"name": "Not empty", "rule": "output.text != ''"}]

MISTAKES = {
    "steps-0-tool_name": ("extract invoice", "1 to 64 letters"),
    "steps-0-max_retries": ("-1", "greater than or equal to 0"),
    "steps-1-output_schema": ('{"type": "object",\n "properties": {,}}', "Line 2, column"),
    "steps-1-audits-0-rule": ("outputs.text != ''", "Unknown variable “outputs”"),
    "steps-2-include_results": ("1, 5", "can't include the results of step 5"),
}


def field(page: Page, name: str) -> Locator:
    return page.locator(f"[name='{name}']")


def type_in(page: Page, name: str, text: str) -> None:
    open_all_folds(page)
    field(page, name).fill(text)


@pytest.fixture
def opened(admin_page: Page) -> Page:
    """The editor of a flow with three steps, the second of which has an audit."""
    steps = (make_step(1), make_step(2, audits=AUDITS), make_step(3))
    flow = load_flow(document=make_flow(*steps, title="Invoices").to_document()).flow
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    return admin_page


def save_as_bob(url: str, **step: object) -> None:
    """Somebody else changes the first step and saves, while the browser has the flow open."""
    client = Client()
    client.force_login(User.objects.create_superuser("bob", password="secret"))
    page = EditorPage(client, url)
    page.fill("steps-0-", **step)
    page.save()


def test_five_mistakes_in_three_cards_are_all_shown_in_place_and_every_typed_character_stays(opened: Page) -> None:
    typed = {name: text for name, (text, _) in MISTAKES.items()} | {
        "description": "What it is for.",
        "note": "Five mistakes.",
        "steps-2-system_message": "  Two lines,\n\nwith “signs” & <markup>. ",
    }
    for name, text in typed.items():
        type_in(opened, name, text)
    opened.get_by_role("button", name="Save", exact=True).click()
    problems = opened.get_by_role("alert").filter(has_text="Not saved")
    expect(problems).to_be_focused()
    expect(problems).to_contain_text("5 things must be mended first")
    for name, text in typed.items():
        expect(field(opened, name)).to_have_value(text)
    for name, (_, sentence) in MISTAKES.items():
        expect(opened.locator(f"#id_{name}_error")).to_contain_text(sentence)
        expect(opened.locator(f"#id_{name}_error")).to_be_visible()
        expect(field(opened, name)).to_have_attribute("aria-invalid", "true")
    assert not FlowVersion.objects.filter(number=2).exists()


def test_the_list_of_problems_leads_to_each_field_through_whatever_is_folded(opened: Page) -> None:
    for name, (text, _) in MISTAKES.items():
        type_in(opened, name, text)
    opened.get_by_role("button", name="Save", exact=True).click()
    links = opened.locator(".problems a")
    expect(links).to_have_count(5)
    for place, name in enumerate(MISTAKES):
        opened.evaluate("document.querySelectorAll('.flow-editor details').forEach((fold) => { fold.open = false })")
        links.nth(place).press("Enter")
        expect(field(opened, name)).to_be_focused()
        expect(field(opened, name)).to_be_in_viewport()


def test_mended_mistakes_are_saved_with_the_note(opened: Page) -> None:
    type_in(opened, "steps-0-max_retries", "-1")
    field(opened, "note").fill("Fewer retries.")
    opened.get_by_role("button", name="Save", exact=True).click()
    expect(opened.get_by_role("alert")).to_be_visible()
    type_in(opened, "steps-0-max_retries", "1")
    opened.get_by_role("button", name="Save and make live").click()
    expect(opened.locator(".messagelist")).to_have_text("Saved as version 2, which is live: new runs use it.")
    expect(opened.locator("#versions")).to_contain_text("Fewer retries.")


class TestConflict:
    def test_the_second_sees_the_difference_and_saves_all_the_same(self, opened: Page) -> None:
        type_in(opened, "steps-1-system_message", "Mine.")
        save_as_bob(opened.url, system_message="Theirs.")
        opened.get_by_role("button", name="Save", exact=True).click()
        notice = opened.get_by_role("region", name="Not saved: the flow was saved while you were editing it")
        expect(notice).to_be_focused()
        expect(notice).to_contain_text("bob saved version 2")
        expect(notice).to_contain_text("Theirs.")
        expect(notice).to_contain_text("Mine.")
        expect(field(opened, "steps-1-system_message")).to_have_value("Mine.")
        with opened.context.expect_page() as other:
            notice.get_by_role("link", name="Open version 2 in another tab").click()
        expect(other.value.locator("h1")).to_contain_text("version 2")
        other.value.close()
        notice.get_by_role("button", name="Save mine as version 3 all the same").click()
        expect(opened.locator(".messagelist")).to_contain_text("Saved as version 3.")
        latest = FlowVersion.objects.latest("number").flow_spec
        assert [step.system_message for step in latest.steps] == ["", "Mine.", ""]

    def test_enter_in_a_field_overwrites_nothing(self, opened: Page) -> None:
        type_in(opened, "steps-1-name", "Mine")
        save_as_bob(opened.url, system_message="Theirs.")
        for _ in range(2):
            field(opened, "title").press("Enter")
            expect(opened.locator(".conflict")).to_be_focused()
        assert FlowVersion.objects.count() == 2

    def test_a_step_that_somebody_deleted_meanwhile_can_be_moved_removed_and_saved(self, opened: Page) -> None:
        type_in(opened, "steps-1-system_message", "Mine.")
        type_in(opened, "steps-1-audits-0-message", "'Mine, too.'")
        client = Client()
        client.force_login(User.objects.create_superuser("bob", password="secret"))
        theirs = EditorPage(client, opened.url)
        for number in (0, 1):
            theirs.fill(f"steps-{number}-", DELETE="on")
        theirs.save()
        opened.get_by_role("button", name="Save", exact=True).click()
        expect(opened.locator(".conflict")).to_be_visible()
        expect(field(opened, "steps-1-system_message")).to_have_value("Mine.")
        opened.locator("#steps-0").get_by_role("button", name="Delete").first.click()
        opened.get_by_role("button", name="Save mine as version 3 all the same").first.click()
        expect(opened.locator(".messagelist")).to_contain_text("Saved as version 3.")
        assert [step.name for step in StepDefinition.objects.all()] == ["Step 2", "Step 3"]
        latest = FlowVersion.objects.latest("number").flow_spec
        assert (latest.steps[0].system_message, latest.steps[0].audits[0].message) == ("Mine.", "'Mine, too.'")

    def test_the_notice_fits_a_narrow_window(self, opened: Page) -> None:
        opened.set_viewport_size({"width": 390, "height": 844})
        type_in(opened, "steps-1-system_message", "Mine, and much of it. " * 20)
        save_as_bob(
            opened.url,
            system_message="Theirs. " * 50,
            output_schema={
                "type": "object",
                "properties": {},
                "required": [],
                "additionalProperties": False,
                "description": "x" * 200,
            },
        )
        opened.get_by_role("button", name="Save", exact=True).click()
        expect(opened.locator(".conflict")).to_be_visible()
        assert_fits(opened)


def test_a_flow_is_archived_and_taken_out_again(opened: Page) -> None:
    opened.get_by_role("link", name="Archive", exact=True).click()
    opened.get_by_role("button", name="Archive it").click()
    expect(opened.locator(".archived")).to_contain_text("This flow is archived.")
    opened.set_viewport_size({"width": 390, "height": 844})
    assert_fits(opened)
    opened.get_by_role("button", name="Take it out of the archive").click()
    expect(opened.get_by_text("This flow is archived.")).to_have_count(0)
    assert not Flow.objects.get().is_archived


def test_who_may_only_see_flows_has_nothing_to_press(opened: Page, browser: Browser, base_url: str) -> None:
    from django.contrib.auth.models import Permission

    viewer = User.objects.create_user("vera", password="secret", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_flow"))
    client = Client()
    client.force_login(viewer)
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": client.cookies[settings.SESSION_COOKIE_NAME].value}
    opened.context.add_cookies([{**cookie, "url": base_url}])
    opened.reload()
    expect(opened.get_by_role("heading", name="Invoices")).to_be_visible()
    for name in ("Save", "Add a step", "Delete", "Try this step"):
        expect(opened.get_by_role("button", name=name)).to_have_count(0)


def test_rules_of_redaction_are_typed_one_in_a_line_and_a_wrong_one_is_told_below_them(opened: Page) -> None:
    type_in(opened, "redact", "/customer/email\nemial")
    opened.get_by_role("button", name="Save", exact=True).click()
    expect(opened.locator("#id_redact_error")).to_contain_text("“emial” is neither a JSON pointer")
    expect(field(opened, "redact")).to_have_value("/customer/email\nemial")
    type_in(opened, "redact", "/customer/email\nemail")
    opened.get_by_role("button", name="Save", exact=True).click()
    expect(opened.get_by_text("Saved as version 2.")).to_be_visible()
    assert FlowVersion.objects.get(number=2).flow_spec.redact == ("/customer/email", "email")
