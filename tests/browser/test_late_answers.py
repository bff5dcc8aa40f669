"""Answers that are late: what the user did meanwhile stays, and counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from flows.engine.judging_process import close_processes
from tests.browser.conftest import Complaints
from tests.browser.editor import field, go_to, open_flow, press_save, row
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.engine.builders import closed, make_issue, make_step


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    close_processes()


@contextmanager
def late(page: Page, address: str, method: str = "GET") -> Iterator[Callable[[], None]]:
    """What is asked for at that address is answered at the end; gives a function that waits until it is asked for."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method == method:
            held.append(route)
        else:
            route.continue_()

    def wait() -> None:
        while not held:
            page.evaluate("new Promise((resolve) => setTimeout(resolve))")

    page.route(re.compile(address), hold)
    yield wait
    wait()
    with page.expect_response(re.compile(address)):
        for route in held:
            route.continue_()
    page.unroute(re.compile(address))


def open_attempts(page: Page, *, is_over: bool) -> RunUnderWay:
    """The page of a run at the first of three attempts that did not pass."""
    run = RunUnderWay(make_step(1, max_retries=9))
    for number in range(3):
        run.end_attempt("failed", output={"text": f"{number}"}, issues=(make_issue("critical", path="/text"),))
    if is_over:
        run.end_attempt()
    follow(page, run.address)
    choose(page, 1)
    return run


def choose(page: Page, attempt: int) -> None:
    page.locator(f"#s1a{attempt}").click()
    expect_attempt(page, attempt)


def expect_attempt(page: Page, attempt: int) -> None:
    expect(page.locator("#pane")).to_have_attribute("data-entry", f"s1a{attempt}")
    expect(page).to_have_title(re.compile(f"step 1, attempt {attempt} · ToolFlow$"))


def test_a_run_is_followed_further_where_an_entry_was_chosen_during_an_update(admin_page: Page) -> None:
    page = admin_page
    run = open_attempts(page, is_over=False)
    with late(page, r"/live\?"):
        page.clock.run_for(1_000)
        choose(page, 2)
    run.end_attempt("failed", output={"text": "more"})
    wait_for_poll(page)
    expect(page.locator("#s1a5")).to_contain_text("Running")


def test_the_last_of_two_entries_and_of_two_views_is_shown(admin_page: Page) -> None:
    page = admin_page
    open_attempts(page, is_over=True)
    # No new page survives this.
    page.evaluate("window.isSame = true")
    with late(page, r"/attempts/2/"):
        page.locator("#s1a2").click()
        page.locator("#s1a3").click()
    expect_attempt(page, 3)
    choose(page, 1)
    with late(page, "view=json"):
        page.locator("#pane a[data-output-view=json]").first.click()
        choose(page, 2)
    expect_attempt(page, 2)
    assert page.evaluate("window.isSame")


def test_nothing_is_typed_while_a_flow_is_saved_and_where_that_fails_it_goes_on(
    admin_page: Page, complaints: Complaints
) -> None:
    page = admin_page
    open_flow(page, make_step(1), make_step(2))
    go_to(page, "/steps/0/name")
    message = field(page, "/steps/0/system_message")
    message.fill("First")
    page.route("**/change/", lambda route: route.abort())
    press_save(page)
    expect(page.get_by_role("alert")).to_contain_text("Nothing was saved.")
    page.unroute("**/change/")
    complaints.take()
    expect(message).to_be_focused()
    with late(page, r"/change/(#.*)?$", "POST"):
        press_save(page)
        page.keyboard.type(" and more")
        expect(message).to_have_value("First")
    expect(page.get_by_text("Saved as version 2")).to_be_visible()
    expect(field(page, "/steps/0/system_message")).to_have_value("First")


def test_a_schema_that_was_changed_meanwhile_is_not_formatted(admin_page: Page) -> None:
    page = admin_page
    open_flow(page, make_step(1))
    go_to(page, "/steps/0/output_schema")
    schema, message = field(page, "/steps/0/output_schema"), field(page, "/steps/0/system_message")
    typed = json.dumps(closed(mine={"type": "string"}))
    with late(page, "/schema/", "POST"):
        page.locator("#editor-part [data-schema-act=format]").first.click()
        schema.fill(typed)
        message.focus()
    expect(schema).to_have_value(typed)
    expect(message).to_be_focused()


def test_the_price_is_that_of_the_model_that_is_named(admin_page: Page) -> None:
    page = admin_page
    open_flow(page, make_step(1))
    row(page, "Flow and limits").click()
    with late(page, "model=gpt-5$") as wait:
        field(page, "/model").fill("gpt-5")
        wait()
        field(page, "/model").fill("gpt-4o-mini")
        expect(page.locator("#editor-part [data-model-said]")).to_contain_text("gpt-4o-mini")
    expect(page.locator("#editor-part [data-model-said]")).to_contain_text("gpt-4o-mini")


def test_what_was_said_of_one_step_is_not_said_of_the_next(admin_page: Page) -> None:
    page = admin_page
    open_flow(page, make_step(1), make_step(2, output_schema=closed(count={"type": "integer"})))
    go_to(page, "/steps/0/name")
    page.locator("#live-try > summary").click()
    page.locator("#try-invent").click()
    verdict = page.locator("#try-verdict .live-attempt-head")
    expect(verdict).to_be_visible()
    page.locator("#editor-part [data-act=step-delete]").click()
    expect(verdict).to_have_count(0)
    # Nor are names completed where the caret no longer is.
    go_to(page, "/steps/0/pass_expression")
    page.locator("#editor-part [data-act=audit-add]").click()
    rule = field(page, "/steps/0/audits/0/rule")
    rule.click()
    rule.press_sequentially("output.c")
    expect(page.get_by_role("option", name="count")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    expect(rule).to_have_value("output.c")
