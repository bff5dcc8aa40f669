"""Starting a run: its input is written as a form and as JSON, and comes back after the session ended."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from playwright.sync_api import Page, expect

from runs.models import BrowserSession, Run
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.security.provider import FakeProvider
from tests.security.test_openid import provider

__all__ = ["provider"]

ADDRESS = "/runs/new/colour-theme/"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["brand", "seeds", "mood", "draft"],
    "properties": {
        "brand": {"type": "string", "minLength": 1, "maxLength": 80},
        "about": {"type": "string"},
        "seeds": {"type": "integer", "minimum": 1, "maximum": 5},
        "mood": {"type": "string", "enum": ["calm", "bold"]},
        "draft": {"type": "boolean"},
        "avoid": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object"},
    },
    "examples": [{"brand": "Nordwind", "seeds": 4, "mood": "bold", "draft": True, "avoid": ["purple"]}],
}
INPUT = {
    "brand": "Tea & Co",
    "about": "Two\nlines",
    "seeds": 3,
    "mood": "calm",
    "draft": True,
    "avoid": ["neon green", "purple"],
    "more": {"deep": [1, {"a": None}]},
}


def tab(page: Page, name: str) -> None:
    """Go over to the form or to JSON."""
    page.get_by_role("group", name="Input format").get_by_role("button", name=name).click()


def fill_form(page: Page) -> None:
    page.get_by_label("Brand").fill("Tea & Co")
    page.get_by_label("About").fill("Two\nlines")
    page.get_by_label("Seeds").fill("3")
    page.get_by_label("Mood").select_option("calm")
    page.get_by_label("Draft").check()
    page.get_by_label("Avoid").fill("neon green\npurple")
    page.get_by_label("More").fill('{"deep": [1, {"a": null}]}')


def list_kept(page: Page) -> list[str]:
    """What this tab keeps of what was typed."""
    page.wait_for_load_state()
    names: list[str] = page.evaluate("Object.keys(sessionStorage)")
    return [name for name in names if name.startswith("toolflow:typed:")]


def sign_in_there(page: Page) -> None:
    page.get_by_role("link", name="Sign in with Example ID").click()
    page.get_by_role("link", name="Yes, that is me").click()


@pytest.mark.urls("tests.security.test_openid")
def test_an_input_is_written_as_form_and_json_and_outlasts_the_session(
    transactional_db: None, page: Page, provider: FakeProvider, settings: Any
) -> None:
    make_version(make_page_flow(input_schema=SCHEMA))
    User.objects.create_superuser("grace", password="secret")
    # An account that may do something already waits for the user with its address.
    settings.TOOLFLOW_OIDC_LINK = ["olga"]
    olga = User.objects.create_user("olga", email=provider.claims["email"])
    olga.user_permissions.set(Permission.objects.filter(codename__in=["add_run", "view_run", "view_flow"]))
    page.goto(f"{ADDRESS}?view=json")
    sign_in_there(page)
    text, status = page.get_by_label("Input", exact=True), page.locator("#input-json-status")
    layout = page.get_by_role("button", name="Format")
    expect(status).to_have_text("✓ Valid JSON")
    text.fill('{\n  "brand": "x"\n  "seeds": 1\n}')
    expect(status).to_contain_text("Line 3, column 3")
    expect(layout).to_be_hidden()
    text.fill("[1]")
    expect(status).to_have_text("A JSON object { … } is expected.")
    text.fill('{"brand": "a {b}, [c]: \\"d\\"", "long": 12345678901234567890, "none": [], "many": [1, {"x": {}}]}')
    layout.click()
    # Only white space changes; a number that a browser can't hold stays as it is.
    assert text.input_value() == (
        '{\n  "brand": "a {b}, [c]: \\"d\\"",\n  "long": 12345678901234567890,\n  "none": [],\n'
        '  "many": [\n    1,\n    {\n      "x": {}\n    }\n  ]\n}'
    )
    expect(text).to_be_focused()
    tab(page, "Form")
    expect(page.get_by_role("status")).to_contain_text("The form can’t show this input exactly")

    page.goto(ADDRESS)
    fill_form(page)
    page.get_by_label("Seeds").fill("9")
    page.locator("#more summary").click()
    page.get_by_label("Time limit").fill("soon")
    page.get_by_role("button", name="Start run").click()
    summary, seeds, limit = page.get_by_role("alert"), page.get_by_label("Seeds"), "Time limit"
    expect(summary.get_by_role("link")).to_have_text(["Seeds", limit])
    page.locator("#more summary").click()
    summary.get_by_role("link", name=limit).click()
    expect(page.get_by_label(limit)).to_be_focused()
    expect(seeds).to_have_attribute("aria-invalid", "true")
    seeds.fill("3")
    expect(seeds).not_to_have_attribute("aria-invalid", "true")
    expect(summary.get_by_role("link")).to_have_text([limit])
    page.get_by_label(limit).fill("60")
    expect(summary).to_have_count(0)
    for words, direction in (("المورد يوافق", "rtl"), ("Two\nlines", "ltr")):
        page.get_by_label("About").fill(words)
        expect(page.get_by_label("About")).to_have_attribute("dir", direction)

    # What was typed comes along from the form to JSON, and is kept for the same user only.
    page.get_by_label("Labels").fill("pilot")
    tab(page, "JSON")
    text.fill(text.input_value().replace("Tea & Co", "Coffee & Co"))
    BrowserSession.objects.all().delete()
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("status")).to_contain_text("You are not signed in any more, so nothing was done.")
    sign_in_there(page)
    expect(page.get_by_label("Labels")).to_have_value("pilot")
    expect(page.get_by_label("Labels")).to_be_visible()
    tab(page, "Form")
    expect(page.get_by_label("Brand")).to_have_value("Coffee & Co")
    BrowserSession.objects.all().delete()
    page.get_by_role("button", name="Start run").click()
    assert list_kept(page)
    page.get_by_label("User name").fill("grace")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Brand")).to_have_value("")
    assert list_kept(page) == []
    assert not Run.objects.exists()
    fill_form(page)
    page.get_by_label("Brand").press("Enter")
    expect(page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == INPUT
    assert list_kept(page) == []
