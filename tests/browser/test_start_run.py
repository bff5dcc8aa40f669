"""Writing the input of a run: as a form, as JSON, from an example, or from an earlier run."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from flows.models import FlowVersion
from runs.models import BrowserSession, Run
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import run_address

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
    page.get_by_role("group", name="How to write the input").get_by_role("button", name=name).click()


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


def sign_in_again(page: Page, name: str) -> None:
    """Meet the sign-in page after the session has ended, and sign in."""
    expect(page.get_by_role("status")).to_contain_text("You are not signed in any more, so nothing was done.")
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("view", ["Form", "JSON"])
def test_what_was_typed_is_there_again_after_the_session_ended(admin_page: Page, view: str) -> None:
    admin_page.goto(ADDRESS)
    fill_form(admin_page)
    admin_page.locator("#more summary").click()
    admin_page.get_by_label("Labels").fill("pilot")
    if view == "JSON":
        tab(admin_page, "JSON")
    BrowserSession.objects.all().delete()
    admin_page.get_by_role("button", name="Start run").click()
    assert list_kept(admin_page)
    sign_in_again(admin_page, "ada")
    expect(admin_page.get_by_label("Labels")).to_have_value("pilot")
    expect(admin_page.get_by_label("Labels")).to_be_visible()
    if view == "Form":
        expect(admin_page.get_by_label("Draft")).to_be_checked()
        expect(admin_page.get_by_label("Mood")).to_have_value('"calm"')
    assert not Run.objects.exists()
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    run = Run.objects.get()
    assert (run.input, run.labels) == (INPUT, ["pilot"])
    assert list_kept(admin_page) == []


def test_what_was_typed_is_for_nobody_else(admin_page: Page) -> None:
    User.objects.create_superuser("grace", password="secret")
    admin_page.goto(ADDRESS)
    fill_form(admin_page)
    BrowserSession.objects.all().delete()
    admin_page.get_by_role("button", name="Start run").click()
    sign_in_again(admin_page, "grace")
    expect(admin_page.get_by_label("Brand")).to_have_value("")
    assert list_kept(admin_page) == []


def test_what_was_typed_comes_along_from_the_form_to_json_and_back(admin_page: Page) -> None:
    admin_page.goto(ADDRESS)
    fill_form(admin_page)
    tab(admin_page, "JSON")
    text = admin_page.get_by_label("Input", exact=True)
    expect(text).to_contain_text('"deep"')
    text.fill(text.input_value().replace("Tea & Co", "Coffee & Co"))
    tab(admin_page, "Form")
    expect(admin_page.get_by_label("Brand")).to_have_value("Coffee & Co")
    expect(admin_page.get_by_label("About")).to_have_value("Two\nlines")
    expect(admin_page.get_by_label("Seeds")).to_have_value("3")
    expect(admin_page.get_by_label("Mood")).to_have_value('"calm"')
    expect(admin_page.get_by_label("Draft")).to_be_checked()
    expect(admin_page.get_by_label("Avoid")).to_have_value("neon green\npurple")
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == {**INPUT, "brand": "Coffee & Co"}


def test_enter_in_a_field_starts_the_run(admin_page: Page) -> None:
    admin_page.goto(ADDRESS)
    fill_form(admin_page)
    admin_page.get_by_label("Brand").press("Enter")
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == INPUT


def test_problems_are_listed_and_shown_at_their_fields_and_nothing_typed_is_lost(admin_page: Page) -> None:
    admin_page.goto(ADDRESS)
    fill_form(admin_page)
    admin_page.get_by_label("Seeds").fill("nine")
    admin_page.get_by_label("Brand").fill("x" * 90)
    admin_page.get_by_role("button", name="Start run").click()
    # What can't be read at all comes first; the rest is checked once everything can be read.
    problems = admin_page.get_by_role("alert")
    expect(problems).to_contain_text("“nine” is not a whole number; write it like 12.")
    seeds = admin_page.get_by_label("Seeds")
    expect(seeds).to_have_attribute("aria-invalid", "true")
    expect(seeds).to_have_value("nine")
    expect(seeds).to_have_accessible_description(re.compile("is not a whole number"))
    expect(admin_page.get_by_label("Avoid")).to_have_value("neon green\npurple")

    seeds.fill("9")
    admin_page.get_by_role("button", name="Start run").click()
    expect(seeds).to_have_accessible_description(re.compile("5"))
    expect(admin_page.get_by_label("Brand")).to_have_attribute("aria-invalid", "true")
    problems.get_by_role("link", name="/seeds").click()
    expect(seeds).to_be_focused()
    seeds.fill("5")
    admin_page.get_by_label("Brand").fill("Tea & Co")
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == {**INPUT, "seeds": 5}


def test_json_is_checked_while_one_types_with_line_and_column(admin_page: Page) -> None:
    admin_page.goto(f"{ADDRESS}?view=json")
    text, status = admin_page.get_by_label("Input", exact=True), admin_page.locator("#input-json-status")
    layout = admin_page.get_by_role("button", name="Format")
    expect(status).to_have_text("✓ Valid JSON")
    text.fill('{\n  "brand": "x"\n  "seeds": 1\n}')
    expect(status).to_have_text("Line 3, column 3: this is not JSON.")
    expect(layout).to_be_hidden()
    text.fill("[1]")
    expect(status).to_have_text("A JSON object { … } is expected.")
    text.fill('{"brand": "a {b}, [c]: \\"d\\"", "long": 12345678901234567890, "none": [], "many": [1, {"x": {}}]}')
    expect(status).to_have_text("✓ Valid JSON")
    layout.click()
    # Only white space changes; a number that a browser can't hold stays as it is.
    assert text.input_value() == (
        '{\n  "brand": "a {b}, [c]: \\"d\\"",\n  "long": 12345678901234567890,\n  "none": [],\n'
        '  "many": [\n    1,\n    {\n      "x": {}\n    }\n  ]\n}'
    )
    expect(text).to_be_focused()


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(enabled, marks=pytest.mark.browser_context_args(java_script_enabled=enabled))
        for enabled in (True, False)
    ],
    ids=["with scripts", "without scripts"],
)
def test_json_with_a_mistake_is_refused_with_line_and_column_and_stays_as_typed(
    admin_page: Page, scripts: bool
) -> None:
    admin_page.goto(f"{ADDRESS}?view=json")
    typed = '{\n  "brand": "x"\n  "seeds": 1\n}'
    text = admin_page.get_by_label("Input", exact=True)
    text.fill(typed)
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.get_by_role("alert")).to_contain_text("Line 3, column 3")
    expect(text).to_have_value(typed)
    expect(text).to_have_attribute("aria-invalid", "true")
    text.fill('{"brand": "x", "seeds": 1, "mood": "calm", "draft": false}')
    tab(admin_page, "Form")
    expect(admin_page.get_by_label("Brand")).to_have_value("x")


def test_json_that_no_field_stands_for_stays_json_with_a_sentence(admin_page: Page) -> None:
    admin_page.goto(f"{ADDRESS}?view=json")
    admin_page.get_by_label("Input", exact=True).fill('{"unknown": 1}')
    tab(admin_page, "Form")
    expect(admin_page.get_by_role("status")).to_contain_text("The form can’t show this input exactly")
    expect(admin_page.get_by_label("Input", exact=True)).to_have_value('{"unknown": 1}')


def test_an_example_can_be_filled_in_and_started(admin_page: Page) -> None:
    admin_page.goto("/runs/new/")
    admin_page.get_by_role("link", name="Colour theme").click()
    admin_page.get_by_role("link", name="Fill in an example").click()
    expect(admin_page.get_by_label("Brand")).to_have_value("Nordwind")
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.get().input == SCHEMA["examples"][0]


def test_run_again_fills_in_the_input_of_the_earlier_run(admin_page: Page) -> None:
    earlier = make_run(FlowVersion.objects.get(), input=INPUT)
    earlier.request_cancel()
    admin_page.goto(run_address(earlier))
    admin_page.get_by_role("link", name="Run again").click()
    expect(admin_page.get_by_label("Brand")).to_have_value("Tea & Co")
    expect(admin_page.get_by_label("Avoid")).to_have_value("neon green\npurple")
    admin_page.get_by_role("button", name="Start run").click()
    expect(admin_page.locator("h1")).to_contain_text("Queued")
    assert Run.objects.exclude(pk=earlier.pk).get().input == INPUT
