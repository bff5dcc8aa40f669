"""The path of docs/first-flow.md, click by click: a flow of two steps with one audit, from an empty page to its run."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

TITLE = "Dish of the day"
INGREDIENT = "spinach"
MESSAGE = "Message to people and to the model"
RUN_TIMEOUT = 30_000
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
    expect(page.get_by_label("Name", exact=True)).to_have_value("dish-of-the-day")
    outline = page.get_by_role("navigation", name="Outline")
    outline.get_by_role("button", name="Input").click()
    make_schema(page, '{"ingredient": "spinach"}')
    show("first-flow-input", page.locator("#editor"))

    outline.get_by_role("button", name="No name yet").click()
    fill_step(
        page,
        name="Choose a dish",
        system_message="You plan the menu of a small restaurant. Choose one dish that uses the ingredient.",
    )
    make_schema(page, '{"dish": "Spinach pie", "minutes": 40}', show=show)
    page.get_by_role("button", name="Add an audit").click()
    page.get_by_label("Name", exact=True).fill("Quick enough")
    page.get_by_label("Passes when", exact=True).fill("output.minutes <= 40")
    page.get_by_label(MESSAGE, exact=True).fill("It takes {output.minutes} minutes; at most 40 are allowed.")
    show("first-flow-step", page.locator("#editor"))

    outline.get_by_role("button", name="Add a step").click()
    fill_step(page, name="Write the line", system_message="Write one inviting line for the menu.")
    make_schema(page, '{"line": "Fresh from the garden"}')
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 1, which is live: new runs use it.")).to_be_visible()


def fill_step(page: Page, *, name: str, system_message: str) -> None:
    """Write into the step that is shown."""
    page.get_by_label("Name of the step").press_sequentially(name)
    page.get_by_label("System message", exact=True).fill(system_message)


def make_schema(page: Page, example: str, show: Show = show_nothing) -> None:
    """Make the schema that is shown from an example of an object."""
    page.get_by_role("tab", name="From an example").click()
    page.get_by_label("An example JSON object").fill(example)
    show("first-flow-schema", page.locator("#editor-part .ef-schema"))
    page.get_by_role("button", name="Make the schema").click()
    expect(page.locator(".schema-table").get_by_role("row")).not_to_have_count(0)
    expect(page.get_by_role("tab", name="Fields")).to_be_focused()


def run_first_flow(page: Page, show: Show = show_nothing) -> None:
    """From the saved flow's page to the end of its first run, whose first dish took too long."""
    page.get_by_role("link", name="Start a run").click()
    page.get_by_label("Ingredient").fill(INGREDIENT)
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    expect(page.locator(".verdict", has_text="passed")).to_be_visible(timeout=RUN_TIMEOUT)
    page.locator("#s1a1").click()
    expect(page.locator("#pane .issue")).to_contain_text("at most 40 are allowed.")
    show("first-flow-run", page.locator("#pane"))


def improve_first_flow(page: Page) -> None:
    """From the run's page: a longer time allowed, tried on the stored output, saved, compared and taken back."""
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Flows").click()
    page.get_by_role("link", name=TITLE).click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_role("navigation", name="Outline").get_by_role("button", name="Quick enough").click()
    page.get_by_label("Passes when", exact=True).fill("output.minutes <= 90")
    page.get_by_label(MESSAGE, exact=True).fill("It takes {output.minutes} minutes; at most 90 are allowed.")
    page.get_by_label("What changed?").fill("90 minutes are fine")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2. New runs still use version 1.")).to_be_visible()

    page.get_by_role("link", name="Versions").click()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("main")).to_contain_text("output.minutes <= 90")
    page.go_back()
    page.get_by_role("link", name="Restore version 1").click()
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.get_by_role("link", name="Make version 3 live")).to_be_visible()
