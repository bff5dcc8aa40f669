"""Reading a run: parts that fold out and are loaded then, links between issues and lines, changes, and the filter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db.models import QuerySet
from playwright.sync_api import Locator, Page, expect

from flows.models import FlowVersion
from runs.models import Run
from runs.pages.opened_attempts import ROOM
from tests.browser.run_under_way import RunUnderWay
from tests.browser.widths import assert_fits, resize
from tests.engine.builders import make_attempt, make_error, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address

SLOW = make_issue("high", "Too slow.", audit="Speed", path="/rows/3/text")
ACCENT = make_issue("high", "“red” is no hex colour.", code="hex_format", audit="Hex colours", path="/accent")
NAME = make_issue("low", "The name is long.", code="length", audit="Length", path="/name")
OUTPUT = {"accent": "red", "name": "A very long name"}


def make_invoice(**fields: Any) -> dict[str, Any]:
    lines = [{"text": "Paper", "amount": 1480.0}, {"text": "Freight", "amount": 85.0}]
    return {"supplier": "Nordwind", "note": "Delivered on Monday to the back door.", "lines": lines, **fields}


def make_compared_run() -> Run:
    """A run whose second attempt brought nothing, and whose third changed two values of the first one's output."""
    changed = {"total": 1565.0, **make_invoice(note="Delivered on Tuesday to the back door.")}
    return make_stored_run(
        make_attempt(1, 1, "failed", output=make_invoice(total=1516.0)),
        make_attempt(1, 2, "errored", error=make_error(message="Overloaded.")),
        make_attempt(1, 3, "failed", output=changed, issues=(make_issue("high", "Not the sum.", path="/total"),)),
    )


def make_traced_run() -> Run:
    """Attempt 2 fixes one of the two issues of attempt 1, attempt 3 the other one."""
    return make_stored_run(
        make_attempt(1, 1, "failed", output=OUTPUT, issues=(ACCENT, NAME)),
        make_attempt(1, 2, "failed", output={**OUTPUT, "accent": "#ff0000"}, issues=(NAME,)),
        make_attempt(1, 3, output={"accent": "#ff0000", "name": "Red"}),
        spec=make_page_flow(make_step(1, issue_severity_filter="high")),
    )


def make_rows(size: int) -> dict[str, Any]:
    """An output of about this many bytes, in long lines."""
    return {"rows": [{"text": "word " * 250} for _ in range(size // 1_250)]}


def chip(page: Page, number: int) -> Locator:
    return page.get_by_role("link", name=re.compile(f"^Attempt {number}: "))


# What folds out


def test_what_the_model_saw_is_loaded_when_it_is_opened_and_only_once(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, system_message="You name colours.", issue_severity_filter="high"))
    run.end_attempt("failed", output=OUTPUT, issues=(NAME, ACCENT))
    run.end_attempt(output={"accent": "#ff0000", "name": "Red"})
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url.partition("/runs/")[2]))
    admin_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    admin_page.goto(run.address)
    part = f"{run.run.pk}/steps/1/attempts/2/request/"
    request = admin_page.locator("#s1a2-request")
    assert part not in asked
    for _ in range(3):
        request.locator("summary").first.click()
    expect(request.locator(".model-message").first).to_contain_text("You name colours.")
    assert asked.count(part) == 1
    admin_page.get_by_role("button", name="Copy the system message").click()
    copied = admin_page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("You name colours.\n\n## Current step attempts\n\nYour earlier outputs")
    assert copied.endswith('"A very long name"}\nIssues:\n- high (at /accent): “red” is no hex colour.')

    # Each line that the model was told leads to the issue that it came from; sections fold, each for itself.
    told = request.locator(".feedback-line")
    expect(told).to_have_count(1)
    section = request.get_by_text("## Current step attempts", exact=True)
    section.click()
    expect(told).to_be_hidden()
    section.click()
    for width in (1_280, 390):
        resize(admin_page, width)
        told.get_by_role("link", name="Hex colours").click()
        expect(admin_page.locator("#s1a1-i1")).to_be_in_viewport()
        assert request.evaluate("(part) => part.scrollWidth <= part.clientWidth + 1")


def test_a_chip_opens_its_attempt_and_says_so(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 1_280, "height": 2_000})
    admin_page.goto(run_address(make_compared_run()))
    second = admin_page.locator("#s1a2")
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "false")
    admin_page.route("**/attempts/2/", lambda route: route.fulfill(status=204))
    chip(admin_page, 2).click()
    # What could not be loaded keeps its link, and is loaded at the next try.
    expect(second.get_by_role("link", name="Open on a page of its own")).to_be_visible()
    admin_page.unroute("**/attempts/2/")
    chip(admin_page, 2).click()
    expect(second.get_by_text("Overloaded.")).to_be_in_viewport()
    assert admin_page.evaluate("scrollY") == 0
    expect(chip(admin_page, 2)).to_have_attribute("aria-expanded", "true")
    expect(second.locator("summary").first).to_be_focused()
    expect(admin_page).to_have_url(re.compile("#s1a2$"))
    admin_page.keyboard.press("Enter")
    expect(second.get_by_text("Overloaded.")).to_be_hidden()


@pytest.mark.parametrize("part", ["s1a1-i0", "s1a1-l13", "s1a1"])
def test_a_link_into_what_is_not_loaded_yet_leads_there(admin_page: Page, part: str) -> None:
    output = make_rows(ROOM * 6 // 10)
    attempts = [make_attempt(1, number, "failed", output=output, issues=(SLOW,)) for number in (1, 2)]
    run = make_stored_run(*attempts, make_attempt(1, 3, output=output), spec=make_page_flow(make_step(1)))
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(request.url.partition("/steps/")[2]))
    admin_page.goto(f"{run_address(run)}#{part}")
    expect(admin_page.locator("#s1a1 .issue").get_by_role("link", name="/rows/3/text")).to_have_count(1)
    shown = admin_page.locator(f"#{part}")
    expect(shown).to_be_in_viewport()
    assert admin_page.evaluate("document.querySelector(':target')?.id") == part
    # It is not hidden under the filter, which stays at the top of the window.
    bar, box = admin_page.locator(".severity-bar").bounding_box(), shown.bounding_box()
    assert bar is not None and box is not None and box["y"] >= bar["y"] + bar["height"]
    assert asked.count("1/attempts/1/") == 1
    assert "1/attempts/2/" not in asked


def test_a_latest_output_too_long_for_the_page_is_there_when_the_reader_comes(admin_page: Page) -> None:
    attempts = [make_attempt(number, 1, output=make_rows(ROOM)) for number in (1, 2)]
    run = make_stored_run(*attempts, spec=make_page_flow(make_step(1), make_step(2)))
    admin_page.goto(run_address(run))
    for id in ("#s1a1", "#s2a1"):
        expect(admin_page.locator(id)).to_have_attribute("open", "")
        admin_page.locator(id).scroll_into_view_if_needed()
        expect(admin_page.locator(f"{id} .line").first).to_be_visible()
    expect(admin_page.locator("[data-load]")).to_have_count(0)


# Issues and lines


def test_an_issue_leads_to_its_line_and_the_line_back_to_its_issue(admin_page: Page) -> None:
    text = {f"line {number}": "x" for number in range(60)}
    issue = make_issue("high", "Not x.", audit="Letters", path="/line 57")
    admin_page.goto(run_address(make_stored_run(make_attempt(1, 1, "failed", output=text, issues=(issue,)))))
    line, shown = admin_page.locator("#s1a1-l59"), admin_page.locator("#s1a1-i0")
    expect(line).not_to_be_in_viewport()
    shown.get_by_role("link", name="/line 57, line 59").click()
    expect(line).to_be_in_viewport()
    expect(line).to_have_css("outline-style", "solid")
    line.get_by_role("link", name="Line 59: High: Letters").click()
    expect(shown).to_be_in_viewport()


def test_a_link_to_an_issue_beyond_the_first_page_leads_to_it_and_back(admin_page: Page) -> None:
    issues = tuple(make_issue("high", f"Item {place} is wrong.", path=f"/items/{place}") for place in range(250))
    run = make_stored_run(make_attempt(1, 1, "failed", output={"items": list(range(250))}, issues=issues))
    admin_page.goto(f"/runs/{run.pk}/#s1a1-i249")
    expect(admin_page.locator("#s1a1-i249")).to_be_in_viewport()
    admin_page.get_by_role("link", name="Graver issues").click()
    expect(admin_page.locator("#s1a1 .issue")).to_have_count(200)
    admin_page.get_by_role("link", name="Back to the run").click()
    expect(admin_page.locator("#s1a1 > summary")).to_be_in_viewport()


def test_links_to_nothing_and_runs_of_a_version_that_can_not_be_read_do_no_harm(admin_page: Page) -> None:
    run = make_retried_run()
    QuerySet(FlowVersion).filter(pk=run.version_id).update(spec={"steps": 7})
    for anchor in ("s9a9", "%zz", "content"):
        admin_page.goto(f"{run_address(run)}#{anchor}")
        expect(admin_page.get_by_text("This release of ToolFlow can’t read version 1 of the flow")).to_be_visible()
    resize(admin_page, 390)
    assert_fits(admin_page)
    admin_page.locator("#s1a2-chip").click()
    expect(admin_page.locator("#s1a2")).to_have_attribute("open", "")


# Changes


def test_the_toggle_shows_what_changed_and_the_output_again(admin_page: Page) -> None:
    admin_page.goto(run_address(make_compared_run()))
    third = admin_page.locator("#s1a3")
    toggle = third.get_by_role("button", name="Changes since attempt 1")
    expect(toggle).to_have_attribute("aria-pressed", "false")
    toggle.press("Space")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    expect(toggle).to_be_focused()
    expect(third.locator("del")).to_have_text(["1516.0", "Monday"])
    expect(third.locator("ins")).to_have_text(["1565.0", "Tuesday"])
    # The line that an issue points at is still marked, and the issue leads there.
    third.get_by_role("link", name="/total, line 2").click()
    expect(third.locator("#s1a3-l2")).to_have_attribute("data-marks", "high")
    expect(admin_page).to_have_url(re.compile(r"\?diff=s1a3#s1a3-l2$"))
    third.get_by_text("unchanged").click()
    expect(third.get_by_text('"Freight"')).to_be_visible()
    admin_page.reload()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    toggle.click()
    expect(third.locator("del")).to_have_count(0)
    expect(admin_page).to_have_url(re.compile(r"/runs/\d+/#s1a3-l2$"))


# The filter by severity


def test_a_hidden_severity_takes_along_what_is_said_of_it_elsewhere_and_is_kept(admin_page: Page) -> None:
    run = make_traced_run()
    admin_page.goto(run_address(run))
    second, third = admin_page.locator("#s1a2"), admin_page.locator("#s1a3")
    second.locator(".hidden-from-model > summary").click()
    line = admin_page.locator("#s1a1-l3")
    parts = (
        second.locator(".hidden-from-model li"), second.locator("#s1a2-i0"), third.get_by_text("Fixed here"),
        line.get_by_role("link"),
    )  # fmt: skip
    ground = line.evaluate("(line) => getComputedStyle(line).backgroundColor")
    low = admin_page.get_by_role("button", name="Low 2")
    for part in parts:
        expect(part).to_be_visible()
    low.click()
    for part in parts:
        expect(part).to_be_hidden()
    expect(second.get_by_text("1 low hidden by the filter above.")).to_be_visible()
    expect(second.get_by_text("Fixed here")).to_be_visible()
    expect(line).not_to_have_css("background-color", ground)
    expect(low).to_have_attribute("aria-pressed", "false")
    expect(low).to_be_focused()
    admin_page.get_by_role("button", name="Hide clean attempts").click()
    expect(third).to_be_hidden()

    expect(admin_page).to_have_url(re.compile(r"\?hide=low(%2C|,)clean$"))
    admin_page.reload()
    expect(third).to_be_hidden()
    admin_page.goto("/runs/")
    admin_page.go_back()
    expect(low).to_have_attribute("aria-pressed", "false")
    low.click()
    expect(second.locator("#s1a2-i0")).to_be_visible()
    expect(admin_page).to_have_url(re.compile(r"\?hide=clean$"))


def test_whoever_follows_a_link_to_what_is_hidden_gets_to_see_it(admin_page: Page) -> None:
    run = make_traced_run()
    admin_page.goto(f"{run_address(run)}?hide=high,clean")
    expect(admin_page.locator("#s1a3")).to_be_hidden()
    admin_page.locator("#s1-head").get_by_role("link", name="attempt 3", exact=True).click()
    expect(admin_page.locator("#s1a3")).to_be_visible()
    expect(admin_page).to_have_url(re.compile(r"\?hide=high#s1a3$"))
    admin_page.goto(f"{run_address(run)}?hide=low,high#s1a1-i0")
    expect(admin_page.locator("#s1a1-i0")).to_be_in_viewport()
    expect(admin_page.get_by_role("button", name="Low 2")).to_have_attribute("aria-pressed", "false")
