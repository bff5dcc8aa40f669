"""The attempts of a step: their strip, what is loaded when it is opened, and what changed from one to the next."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from runs.pages.opened_attempts import ROOM
from runs.rollup import count_ended_runs
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.browser.test_accessibility import assert_accessible
from tests.browser.widths import assert_fits
from tests.engine.builders import make_attempt, make_error, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import run_address

SLOW = make_issue("high", "Too slow.", audit="Speed", path="/rows/3/text")


def make_invoice(**fields: Any) -> dict[str, Any]:
    lines = [{"text": "Paper", "amount": 1480.0}, {"text": "Freight", "amount": 85.0}]
    return {"supplier": "Nordwind", "note": "Delivered on Monday to the back door.", "lines": lines, **fields}


def make_compared_run() -> Run:
    """A run whose second attempt brought nothing, and whose third changed two values of the first one's output."""
    return make_stored_run(
        make_attempt(1, 1, "failed", output=make_invoice(total=1516.0)),
        make_attempt(1, 2, "errored", error=make_error(message="Overloaded.")),
        make_attempt(
            *(1, 3, "failed"),
            output={"total": 1565.0, **make_invoice(note="Delivered on Tuesday to the back door.")},
            issues=(make_issue("high", "Not the sum.", path="/total"),),
        ),
    )


def make_rows(size: int) -> dict[str, Any]:
    """An output of about this many bytes, in long lines."""
    return {"rows": [{"text": "word " * 250} for _ in range(size // 1_250)]}


def make_long_run() -> Run:
    """A run of three attempts whose outputs find no room on the page beside that of the last."""
    output = make_rows(ROOM * 6 // 10)
    attempts = [make_attempt(1, number, "failed", output=output, issues=(SLOW,)) for number in (1, 2)]
    return make_stored_run(*attempts, make_attempt(1, 3, output=output), spec=make_page_flow(make_step(1)))


def chip(page: Page, number: int) -> Any:
    return page.get_by_role("link", name=re.compile(f"^Attempt {number}: "))


def test_a_chip_opens_its_attempt_and_says_so(admin_page: Page) -> None:
    admin_page.goto(run_address(make_compared_run()))
    second = admin_page.locator("#s1a2")
    expect(second.get_by_text("Overloaded.")).to_have_count(0)
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "false")
    chip(admin_page, 2).focus()
    admin_page.keyboard.press("Enter")
    expect(second.get_by_text("Overloaded.")).to_be_visible()
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "true")
    expect(second.locator("summary").first).to_be_focused()
    expect(second.locator("summary").first).to_be_in_viewport()
    expect(admin_page).to_have_url(re.compile("#s1a2$"))
    admin_page.keyboard.press("Enter")
    expect(second.get_by_text("Overloaded.")).to_be_hidden()
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "false")


def test_a_chip_moves_the_page_no_more_than_it_must(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 1_280, "height": 2_000})
    admin_page.goto(run_address(make_compared_run()))
    chip(admin_page, 2).click()
    expect(admin_page.get_by_text("Overloaded.")).to_be_in_viewport()
    assert admin_page.evaluate("scrollY") == 0


def test_what_finds_no_room_on_the_page_is_loaded_when_a_link_leads_into_it(admin_page: Page) -> None:
    run = make_long_run()
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url.partition("/steps/")[2]))
    admin_page.goto(f"{run_address(run)}#s1a1-i0")
    issue = admin_page.locator("#s1a1-i0")
    expect(issue).to_be_in_viewport()
    issue.get_by_role("link", name="/rows/3/text").click()
    expect(admin_page.locator("#s1a1-l13")).to_be_in_viewport()
    expect(admin_page.locator("#s1a1-l13")).to_have_css("outline-style", "solid")
    chip(admin_page, 1).click()
    assert asked.count("1/attempts/1/") == 1
    assert "1/attempts/2/" not in asked


def make_run_with_a_long_middle() -> Run:
    """A run of three steps. What the second one brought stands open, far down, and is loaded when somebody comes."""
    lines = {"rows": list(range(800))}
    attempts = [
        make_attempt(1, 1, output=lines),
        make_attempt(2, 1, output=make_rows(ROOM), issues=(SLOW,)),
        make_attempt(3, 1, output=lines),
    ]
    return make_stored_run(*attempts, spec=make_page_flow(*(make_step(number) for number in (1, 2, 3))))


@pytest.mark.parametrize("way", ["compared", "found"])
def test_links_of_other_pages_lead_into_an_attempt_that_is_open_and_not_loaded(admin_page: Page, way: str) -> None:
    run = make_run_with_a_long_middle()
    if way == "compared":
        admin_page.goto(f"/runs/compare/?a={make_run_with_a_long_middle().pk}&b={run.pk}")
        admin_page.get_by_role("link", name=f"Open in #{run.pk}").click()
        expect(admin_page.locator("#s2a1-i0")).to_be_in_viewport()
    else:
        count_ended_runs()
        admin_page.goto("/runs/?q=slow")
        admin_page.get_by_role("link", name="Step 2, attempt 1, issue").click()
        expect(admin_page.locator("#s2a1")).to_be_in_viewport()
    expect(admin_page.locator("#s2a1").get_by_text("Too slow.")).to_have_count(1)


def test_a_latest_output_too_long_for_the_page_is_there_when_the_reader_comes(admin_page: Page) -> None:
    output = make_rows(ROOM)
    steps = [make_step(number) for number in (1, 2)]
    attempts = [make_attempt(number, 1, output=output) for number in (1, 2)]
    admin_page.goto(run_address(make_stored_run(*attempts, spec=make_page_flow(*steps))))
    for id in ("#s1a1", "#s2a1"):
        expect(admin_page.locator(id)).to_have_attribute("open", "")
        admin_page.locator(id).scroll_into_view_if_needed()
        expect(admin_page.locator(f"{id} .line").first).to_be_visible()
    expect(admin_page.locator("[data-load]")).to_have_count(0)


def test_what_could_not_be_loaded_keeps_its_link_and_is_loaded_at_the_next_try(admin_page: Page) -> None:
    admin_page.goto(run_address(make_compared_run()))
    admin_page.route("**/attempts/2/", lambda route: route.fulfill(status=204))
    chip(admin_page, 2).click()
    second = admin_page.locator("#s1a2")
    expect(second.get_by_role("link", name="Open on a page of its own")).to_be_visible()
    admin_page.unroute("**/attempts/2/")
    chip(admin_page, 2).click()
    expect(second.get_by_text("Overloaded.")).to_be_visible()


def test_the_toggle_shows_what_changed_and_the_output_again(admin_page: Page) -> None:
    run = make_compared_run()
    admin_page.goto(run_address(run))
    third = admin_page.locator("#s1a3")
    toggle = third.get_by_role("button", name="Changes since attempt 1")
    expect(toggle).to_have_attribute("aria-pressed", "false")
    toggle.focus()
    admin_page.keyboard.press("Space")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    expect(toggle).to_be_focused()
    expect(third.locator(".diff-sum")).to_have_text("Since attempt 1: ~ 2 changed")
    expect(third.locator("del")).to_have_text(["1516.0", "Monday"])
    expect(third.locator("ins")).to_have_text(["1565.0", "Tuesday"])
    # The line that an issue points at is still marked, and the issue leads there.
    third.get_by_role("link", name="/total, line 2").click()
    expect(third.locator("#s1a3-l2")).to_have_attribute("data-marks", "high")
    expect(admin_page).to_have_url(re.compile(r"\?diff=s1a3#s1a3-l2$"))
    unchanged = third.get_by_text("unchanged")
    unchanged.click()
    expect(third.get_by_text('"Freight"')).to_be_visible()

    admin_page.reload()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    toggle.click()
    expect(third.locator("del")).to_have_count(0)
    expect(third.locator(".line").nth(1)).to_contain_text('"total": 1565.0')
    expect(admin_page).to_have_url(re.compile(r"/runs/\d+/#s1a3-l2$"))


def test_an_attempt_that_the_reader_watches_stays_open_with_its_changes_when_the_next_begins(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, max_retries=5))
    run.end_attempt("failed", output={"text": "red"}, issues=(SLOW,))
    follow(admin_page, run.address)
    run.end_attempt("failed", output={"text": "green"}, issues=(SLOW,))
    wait_for_poll(admin_page)
    second = admin_page.locator("#s1a2")
    expect(second.get_by_text("Too slow.")).to_be_visible()
    expect(admin_page.locator("#s1a3")).to_have_attribute("open", "")
    second.get_by_role("button", name="Changes since attempt 1").click()
    expect(second.locator("ins")).to_contain_text("green")
    run.end_attempt("failed", output={"text": "blue"})
    wait_for_poll(admin_page)
    expect(chip(admin_page, 4)).to_have_attribute("aria-expanded", "true")
    expect(second.locator("ins")).to_be_visible()
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "true")
    admin_page.locator("#s1a2 > summary").click()
    run.end_attempt("failed", output={"text": "blue"})
    wait_for_poll(admin_page)
    expect(chip(admin_page, 5)).to_be_visible()
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "false")


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_javascript_there_are_pages_for_both(admin_page: Page) -> None:
    run = make_compared_run()
    admin_page.goto(f"{run_address(run)}?hide=low")
    admin_page.locator("#s1a3").get_by_role("button", name="Changes since attempt 1").click()
    expect(admin_page).to_have_url(re.compile(r"\?hide=low&diff=s1a3#s1a3$"))
    expect(admin_page.locator("#s1a3 del").first).to_have_text("1516.0")
    admin_page.get_by_role("button", name="High 1").click()
    expect(admin_page.locator("#s1a3 del").first).to_have_text("1516.0")
    admin_page.locator("#s1a2 > summary").click()
    admin_page.locator("#s1a2").get_by_role("link", name="Open on a page of its own").click()
    expect(admin_page.get_by_text("Overloaded.")).to_be_visible()
    admin_page.get_by_role("link", name="Back to the run").click()
    expect(admin_page).to_have_url(re.compile("#s1a2$"))


def test_sixty_interrupted_attempts_keep_the_page_in_its_window(admin_page: Page) -> None:
    attempts = [make_attempt(1, number, "interrupted") for number in range(1, 61)]
    admin_page.goto(run_address(make_stored_run(*attempts, make_attempt(1, 61), spec=make_page_flow(make_step(1)))))
    for width in (1_280, 390):
        admin_page.set_viewport_size({"width": width, "height": 800})
        strip = admin_page.get_by_role("list", name="Attempts of step 1").bounding_box()
        assert strip is not None and strip["height"] <= 110
        assert_fits(admin_page)


@pytest.mark.browser_context_args(bypass_csp=True)
def test_strips_and_changes_are_accessible(admin_page: Page) -> None:
    run = make_compared_run()
    admin_page.goto(f"{run_address(run)}?diff=s1a3")
    chip(admin_page, 2).click()
    expect(admin_page.get_by_text("Overloaded.")).to_be_visible()
    assert_accessible(admin_page)
    admin_page.goto(f"{run_address(run)}steps/1/attempts/3/")
    assert_accessible(admin_page)
