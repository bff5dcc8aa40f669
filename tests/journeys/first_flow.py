"""The path of docs/first-flow.md, click by click: a flow of two steps with one audit, from an empty page to its run."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

TITLE = "Dish of the day"
INGREDIENT = "spinach"
RUN_PATIENCE = 30_000
"""Milliseconds that a run may take."""

Show = Callable[[str, Locator | None], None]
"""Is told at each picture of the page: its name, and what the picture is about (the window if None)."""


def show_nothing(name: str, part: Locator | None) -> None:
    """Takes no picture."""


def build_first_flow(page: Page, show: Show = show_nothing) -> None:
    """From the list of flows to a saved flow, whose first version is live."""
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Flows").click()
    page.get_by_role("link", name="New flow").click()
    page.get_by_label("Title").press_sequentially(TITLE)
    expect(page.locator("#id_name")).to_have_value("dish-of-the-day")
    make_schema(page, page.locator("#id_input_schema"), '{"ingredient": "spinach"}')
    show("first-flow-input", page.locator(".card-body").first)

    card = add_step(
        page,
        name="Choose a dish",
        system_message="You plan the menu of a small restaurant. Choose one dish that uses the ingredient.",
    )
    example = '{"dish": "Spinach pie", "minutes": 40}'
    make_schema(page, card.locator("[name$=-output_schema]"), example, show=show)
    card.get_by_role("button", name="Add an audit").click()
    audit = card.locator(".audit:visible")
    audit.get_by_label("Name").fill("Quick enough")
    audit.get_by_label("Rule").fill("output.minutes <= 40")
    audit.get_by_text("Message, suggestions and path").click()
    audit.get_by_label("Message template").fill("It takes {output.minutes} minutes; at most 40 are allowed.")
    show("first-flow-step", card)

    card = add_step(page, name="Write the line", system_message="Write one inviting line for the menu.")
    make_schema(page, card.locator("[name$=-output_schema]"), '{"line": "Fresh from the garden"}')
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 1, which is live: new runs use it.")).to_be_visible()


def add_step(page: Page, *, name: str, system_message: str) -> Locator:
    """Add a step at the end; gives its card."""
    count = page.locator(".step:visible").count()
    page.get_by_role("button", name="Add a step", exact=True).click()
    card = page.locator(".step:visible").nth(count)
    card.get_by_label("Name").first.press_sequentially(name)
    card.get_by_label("System message").fill(system_message)
    return card


def make_schema(page: Page, field: Locator, example: str, show: Show = show_nothing) -> None:
    """Make the schema of a field from an example of an object."""
    field.locator("xpath=ancestor::*[contains(@class, 'tf-field')][1]").get_by_role(
        "button", name="Make a schema…"
    ).click()
    maker = page.get_by_role("dialog")
    maker.get_by_role("tab", name="From an example").click()
    maker.locator("#maker-example-text").fill(example)
    use = maker.get_by_role("button", name="Use this schema")
    expect(use).to_be_enabled()
    show("first-flow-schema", maker)
    use.click()
    expect(maker).to_be_hidden()


def run_first_flow(page: Page, show: Show = show_nothing) -> None:
    """From the saved flow's page to the end of its first run, whose first dish took too long."""
    page.get_by_role("link", name="Start a run").click()
    page.get_by_label("Ingredient").fill(INGREDIENT)
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    expect(page.locator(".verdict", has_text="passed")).to_be_visible(timeout=RUN_PATIENCE)
    page.locator("#s1a1").click()
    expect(page.locator("#pane .issue")).to_contain_text("at most 40 are allowed.")
    show("first-flow-run", page.locator("#pane"))


def improve_first_flow(page: Page) -> None:
    """From the run's page: a longer time allowed, tried on the stored output, saved, compared and taken back."""
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Flows").click()
    page.get_by_role("link", name=TITLE).click()
    page.get_by_role("link", name="Edit", exact=True).click()
    card = page.locator("#steps-0")
    card.get_by_label("Rule").fill("output.minutes <= 90")
    card.get_by_text("Message, suggestions and path").click()
    card.get_by_label("Message template").fill("It takes {output.minutes} minutes; at most 90 are allowed.")
    card.get_by_role("button", name="Try this step").click()
    panel = page.get_by_role("dialog")
    panel.get_by_label("Output", exact=True).select_option(label="Attempt 1 of run 1 (failed)")
    panel.get_by_role("button", name="Check this output").click()
    expect(panel).to_contain_text("in the run it was: Failed")
    panel.get_by_role("button", name="Close").first.click()
    page.get_by_label("What changed?").fill("90 minutes are fine")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2. New runs still use version 1.")).to_be_visible()

    page.get_by_role("link", name="All versions and differences").click()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("main")).to_contain_text("output.minutes <= 90")
    page.go_back()
    page.get_by_role("link", name="Restore version 1").click()
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.get_by_role("link", name="Make version 3 live")).to_be_visible()
