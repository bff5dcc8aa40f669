"""Writing the input of a run: as a form, as JSON, from an example; nothing that was typed is lost."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from runs.models import BrowserSession, Run
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

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


@pytest.fixture(autouse=True)
def _flow(transactional_db: None) -> None:
    make_version(make_page_flow(input_schema=SCHEMA))


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


def test_what_was_typed_is_there_again_after_the_session_ended_and_for_nobody_else(admin_page: Page) -> None:
    User.objects.create_superuser("grace", password="secret")
    admin_page.goto(ADDRESS)
    for view in ("Form", "JSON"):
        fill_form(admin_page)
        admin_page.locator("#more summary").click()
        admin_page.get_by_label("Labels").fill("pilot")
        if view == "JSON":
            tab(admin_page, "JSON")
        BrowserSession.objects.all().delete()
        admin_page.get_by_role("button", name="Start run").click()
        assert list_kept(admin_page)
        expect(admin_page.get_by_role("status")).to_contain_text("You are not signed in any more, so nothing was done.")
        admin_page.get_by_label("User name").fill("grace")
        admin_page.get_by_label("Password").fill("secret")
        admin_page.get_by_role("button", name="Sign in").click()
        if view == "Form":
            # That was typed by somebody else.
            expect(admin_page.get_by_label("Brand")).to_have_value("")
            assert list_kept(admin_page) == []
    expect(admin_page.get_by_label("Labels")).to_have_value("pilot")
    expect(admin_page.get_by_label("Labels")).to_be_visible()
    assert not Run.objects.exists()
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    run = Run.objects.get()
    assert (run.input, run.labels) == (INPUT, ["pilot"])
    assert list_kept(admin_page) == []


def test_problems_are_told_while_one_types_in_the_form_or_in_json(admin_page: Page) -> None:
    admin_page.goto(ADDRESS)
    fill_form(admin_page)
    admin_page.get_by_label("Seeds").fill("9")
    admin_page.locator("#more summary").click()
    admin_page.get_by_label("Time limit").fill("soon")
    admin_page.get_by_role("button", name="Start run").click()
    summary, seeds, limit = admin_page.get_by_role("alert"), admin_page.get_by_label("Seeds"), "Time limit"
    expect(summary.get_by_role("link")).to_have_text(["Seeds", limit])
    admin_page.locator("#more summary").click()
    summary.get_by_role("link", name=limit).click()
    expect(admin_page.get_by_label(limit)).to_be_focused()
    expect(seeds).to_have_attribute("aria-invalid", "true")
    seeds.fill("3")
    expect(seeds).not_to_have_attribute("aria-invalid", "true")
    expect(summary.get_by_role("link")).to_have_text([limit])
    admin_page.get_by_label(limit).fill("60")
    expect(summary).to_have_count(0)
    for text, direction in (("المورد يوافق", "rtl"), ("Two\nlines", "ltr")):
        admin_page.get_by_label("About").fill(text)
        expect(admin_page.get_by_label("About")).to_have_attribute("dir", direction)
    # What was typed comes along from the form to JSON and back.
    tab(admin_page, "JSON")
    text_area = admin_page.get_by_label("Input", exact=True)
    text_area.fill(text_area.input_value().replace("Tea & Co", "Coffee & Co"))
    tab(admin_page, "Form")
    admin_page.get_by_label("Brand").press("Enter")
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == {**INPUT, "brand": "Coffee & Co"}

    admin_page.goto(f"{ADDRESS}?view=json")
    text, status = admin_page.get_by_label("Input", exact=True), admin_page.locator("#input-json-status")
    layout = admin_page.get_by_role("button", name="Format")
    expect(status).to_have_text("✓ Valid JSON")
    text.fill('{\n  "brand": "x"\n  "seeds": 1\n}')
    expect(status).to_contain_text("Line 3, column 3")
    expect(layout).to_be_hidden()
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.get_by_role("alert")).to_contain_text("Line 3, column 3")
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
    tab(admin_page, "Form")
    expect(admin_page.get_by_role("status")).to_contain_text("The form can’t show this input exactly")
