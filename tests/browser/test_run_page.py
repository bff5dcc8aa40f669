"""The page of a run in a browser: read by mouse, on a phone and by keyboard; followed while it goes on."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from runs.models import Run
from tests.browser.conftest import Complaints
from tests.browser.run_under_way import RunUnderWay, follow, wait_for_poll
from tests.browser.widths import assert_fits, resize
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import run_address

ACCENT = make_issue("high", "“red” is no hex colour.", code="hex_format", audit="Hex colours", path="/accent")
NAME = make_issue("low", "The name is long.", code="length", audit="Length", path="/name")
OUTPUT = {"accent": "red", "name": "A very long name"}
INTERACTIVE = "a[href], button:not([disabled]), summary, input:not([type=hidden]), select, textarea"


def make_read_run() -> RunUnderWay:
    """A run whose attempt 2 fixed one of the two issues of attempt 1, and attempt 3 the other one."""
    run = RunUnderWay(make_step(1, system_message="You name colours.", issue_severity_filter="high"))
    run.end_attempt("failed", output=OUTPUT, issues=(ACCENT, NAME))
    run.end_attempt("failed", output={**OUTPUT, "accent": "#ff0000"}, issues=(NAME,))
    run.end_attempt(output={"accent": "#ff0000", "name": "Red"})
    return run


def list_unreached(page: Page) -> list[str]:
    """What can be clicked, but not be reached with the tab key, or does not show there that it has the focus."""
    parts = page.locator(INTERACTIVE).locator("visible=true")
    parts.evaluate_all("(parts) => { window.wanted = new Set(parts) }")
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    for _ in range(parts.count() + 8):
        page.keyboard.press("Tab")
        page.evaluate("""() => {
            const part = document.activeElement;
            if (getComputedStyle(part).outlineStyle !== "none") window.wanted.delete(part);
        }""")
    unreached: list[str] = page.evaluate("[...window.wanted].map((part) => part.outerHTML)")
    return unreached


@pytest.mark.browser_context_args(permissions=["clipboard-read", "clipboard-write"])
def test_a_run_is_read_by_mouse_on_a_phone_and_by_keyboard(admin_page: Page) -> None:
    page, run = admin_page, make_read_run()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/steps/")[2]))
    page.goto(run.address)
    page.evaluate("window.isSame = true")
    outline, pane = page.get_by_role("navigation", name="Outline"), page.locator("#pane")
    dialog = page.get_by_role("dialog")
    outline.get_by_role("link", name="Attempt 1 : Failed").click()
    expect(page).to_have_url(re.compile(r"/steps/1/attempts/1/$"))
    expect(page.locator("#s1a1")).to_be_focused()
    page.locator("#i1-marks a", has_text="attempt 2").first.click()
    expect(page).to_have_url(re.compile(r"/steps/1/attempts/2/#i0$"))
    expect(page.locator("#i0:target")).to_be_in_viewport()
    page.locator("#changes").click()
    expect(pane.locator("del")).to_contain_text("red")
    assert page.evaluate("window.isSame")
    page.reload()
    expect(pane.locator("del")).to_contain_text("red")
    for entry in ("s1a2", "s1a1"):
        page.go_back()
        expect(pane).to_have_attribute("data-entry", entry)

    # What is hidden stays so.
    low = page.get_by_role("button", name="Low 2")
    low.click()
    for part in ("#i1", "#i1-at"):
        expect(page.locator(part)).to_be_hidden()
    expect(low).to_have_attribute("aria-pressed", "false")
    expect(low).to_be_focused()
    page.locator("#s1a2").click()
    expect(page).to_have_url(re.compile(r"/attempts/2/\?hide=low$"))
    page.reload()
    expect(page.locator("#i0")).to_be_hidden()
    low.click()
    expect(page.locator("#i0")).to_be_visible()

    # What the model saw is loaded when it is opened, and only once.
    request = page.locator("#request")
    assert "1/attempts/2/request/" not in asked
    for _ in range(3):
        request.locator("summary").first.click()
    expect(request.locator(".model-message").first).to_contain_text("You name colours.")
    assert asked.count("1/attempts/2/request/") == 1
    page.get_by_role("button", name="Copy the system message").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("You name colours.\n\n## Current step attempts")
    request.locator(".feedback-line").get_by_role("link", name="Hex colours").click()
    expect(pane).to_have_attribute("data-entry", "s1a1")

    resize(page, 390)
    picker = page.locator("#picker summary")
    picker.click()
    outline.get_by_role("link", name="Attempt 2 : Failed").click()
    expect(picker).to_contain_text("1 Step 1 · attempt 2")
    expect(outline).to_be_hidden()
    assert_fits(page)
    page.locator("#phone-bar").get_by_role("link", name="Next entry").click()
    expect(pane).to_have_attribute("data-entry", "s1a3")

    resize(page, 1_280)
    page.goto(run.address)
    for key, entry, focused in (
        ("j", "s0a1", "s0a1"),
        ("j", "s1a1", "s1a1"),
        ("]", "s1a2", "tab-2"),
        ("]", "s1a3", "tab-3"),
        ("]", "s1a3", "tab-3"),
        ("[", "s1a2", "tab-2"),
        ("i", "s1a2", "i0"),
        ("k", "s1a1", "s1a1"),
        ("k", "s0a1", "s0a1"),
        ("k", "result", "result"),
        ("k", "result", "result"),
    ):
        page.keyboard.press(key)
        expect(pane).to_have_attribute("data-entry", entry)
        expect(page.locator(f"#{focused}")).to_be_focused()
        expect(page.locator(".outline [aria-current]")).to_have_id(entry)
    expect(page).to_have_url(re.compile(r"\?show=result$"))
    # With the filter on, clean entries are passed over.
    page.locator("#issues-only").click()
    expect(page.locator("#s1a3")).to_be_hidden()
    for entry in ("s0a1", "s1a1", "s1a2", "s1a2"):
        page.keyboard.press("j")
        expect(pane).to_have_attribute("data-entry", entry)

    page.goto(run.address)
    # They are left alone while one types or means something else.
    page.evaluate("document.querySelector('.severity-bar').append(document.createElement('input'))")
    typed = page.locator(".severity-bar > input:not([type])")
    typed.focus()
    page.keyboard.type("jki[]?")
    expect(typed).to_have_value("jki[]?")
    expect(dialog).to_have_count(0)
    entry = page.locator("#s1a1")
    entry.focus()
    for key in ("Control+j", "Alt+k", "Meta+i", "x", "J", "?", "j"):
        page.keyboard.press(key)
    page.get_by_label("Use these keys").uncheck()
    dialog.get_by_role("button", name="Close").click()
    expect(entry).to_be_focused()
    page.reload()
    for key in ("j", "?"):
        page.keyboard.press(key)
    expect(pane).to_have_attribute("data-entry", "result")
    expect(dialog).to_have_count(0)
    page.locator("#more-summary").click()
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Use these keys").check()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(pane).to_have_attribute("data-entry", "s0a1")

    page.goto(f"{run.address}steps/1/attempts/1/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    assert list_unreached(page) == []

    # Where browsers give pages no clipboard.
    page.goto(f"{run.address}steps/1/attempts/1/")
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.reload()
    button = pane.locator("[data-copies]").first
    button.click()
    expect(button).to_have_attribute("data-notice", "Copied")
    expect(button).to_be_focused()
    field = page.evaluate_handle("document.body.appendChild(document.createElement('textarea'))").as_element()
    assert field is not None
    field.focus()
    page.keyboard.press("Control+v")
    copied = page.locator(f"#{button.get_attribute('data-copies')}").text_content()
    assert field.input_value().strip() == (copied or "").strip()

    issues = tuple(make_issue("high", f"Item {place} is wrong.", path=f"/items/{place}") for place in range(250))
    long = make_stored_run(make_attempt(1, 1, "failed", output={"items": list(range(250))}, issues=issues))
    # As such a link was once, to an issue beyond the first page of them.
    page.goto(f"{run_address(long)}#s1a1-i249")
    expect(page).to_have_url(re.compile(r"/steps/1/attempts/1/\?issues=2#i249$"))
    shown, line = page.locator("#i249"), page.locator(".text-line:has(#i249-at)")
    expect(shown).to_be_in_viewport()
    shown.get_by_role("link", name="/items/249").click()
    expect(line).to_be_in_viewport()
    expect(line).to_have_css("outline-style", "solid")
    page.locator("#i249-at").click()
    expect(shown).to_be_in_viewport()


class Questions:
    """The questions of a page, as its own clock goes on second by second."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._asked = self._answered = 0
        page.on("request", lambda request: self._count(request.url, asked=1))
        page.on("requestfinished", lambda request: self._count(request.url, answered=1))
        page.on("requestfailed", lambda request: self._count(request.url, answered=1))

    def _count(self, url: str, asked: int = 0, answered: int = 0) -> None:
        if "/live?" in url:
            self._asked += asked
            self._answered += answered

    def count_during(self, seconds: int) -> int:
        """How many were asked in that time. Each is answered before the next second."""
        before = self._asked
        for _ in range(seconds):
            self._page.clock.run_for(1_000)
            # What the clock made the page do arrives before this is answered.
            self._page.evaluate("0")
            while self._answered < self._asked:
                self._page.evaluate("new Promise(requestAnimationFrame)")
        return self._asked - before


def test_a_run_is_followed_to_its_end_and_leaves_the_reader_alone(admin_page: Page, complaints: Complaints) -> None:
    page, run = admin_page, RunUnderWay(make_step(1, max_retries=9))
    page.set_viewport_size({"width": 1_200, "height": 500})
    follow(page, run.address)
    questions, pane = Questions(page), page.locator("#pane")
    announcement = page.locator("#announcement")
    expect(announcement).to_have_attribute("aria-live", "polite")
    # No reload survives this, and only an element that stays is read out.
    page.evaluate("window.line = document.getElementById('announcement')")
    expect(pane).to_contain_text("Waiting for the model…")
    run.end_attempt("failed", output={"text": "a line that is read"}, issues=(make_issue("critical", path="/text"),))
    # A tab that is shown again asks at once, also where that comes right after an update.
    page.evaluate("""document.addEventListener(
        "htmx:afterRequest", () => document.dispatchEvent(new Event("visibilitychange")), { once: true }
    )""")
    wait_for_poll(page)
    # A reader who does nothing goes along.
    expect(pane).to_have_attribute("data-entry", "s1a2")
    expect(page).to_have_title(re.compile("step 1, attempt 2 · ToolFlow$"))
    expect(announcement).to_have_text("Running. Step 1, attempt 2: running.")

    page.locator("#s1a1").click()
    page.get_by_text("What the model saw").click()
    expect(page.get_by_role("heading", name="User message")).to_be_visible()
    line = page.locator(".attempt-output .text-line", has_text="that is read")
    line.select_text()
    summary = page.locator("#request-summary")
    summary.focus()
    line.scroll_into_view_if_needed()
    selected, place = page.evaluate("getSelection().toString()"), line.bounding_box()
    for _ in range(2):
        run.end_attempt("failed", output={"text": "another"})
        wait_for_poll(page)
    expect(page.locator("#s1a4")).to_contain_text("Running")
    expect(pane).to_have_attribute("data-entry", "s1a1")
    expect(page.locator("#i0")).to_contain_text("Fixed by attempt 2")
    expect(page.get_by_role("heading", name="User message")).to_be_visible()
    expect(summary).to_be_focused()
    assert "that is read" in selected and page.evaluate("getSelection().toString()") == selected
    assert line.bounding_box() == place
    # So do the focus in what is drawn again, and its rows where it was scrolled, also on a phone.
    page.locator("#s1a2").focus()
    page.evaluate("document.querySelector('.side').scrollTop = 60")
    place = page.locator("#s1a3").bounding_box()
    run.end_attempt("failed")
    wait_for_poll(page)
    expect(page.locator("#s1a5")).to_contain_text("Running")
    expect(page.locator("#s1a2")).to_be_focused()
    assert page.locator("#s1a3").bounding_box() == place
    page.set_viewport_size({"width": 390, "height": 300})
    page.locator("#picker > summary").click()
    page.evaluate("document.querySelector('#outline').scrollTop = 60")
    place = page.locator("#s1a3").bounding_box()
    run.end_attempt("failed")
    wait_for_poll(page)
    expect(page.locator("#s1a6")).to_contain_text("Running")
    assert page.locator("#s1a3").bounding_box() == place

    # It asks less and less often, and not at all when hidden.
    assert questions.count_during(4) >= 3
    page.set_viewport_size({"width": 1_200, "height": 500})
    page.get_by_role("link", name="Latest: step 1, attempt 6").click()
    expect(pane).to_have_attribute("data-entry", "s1a6")
    questions.count_during(40)
    assert 2 <= questions.count_during(24) <= 3
    # It counts on by itself meanwhile.
    for part in ("#outline [data-seconds]", "#run-figures [data-seconds]", "#pane-head [data-seconds]"):
        expect(page.locator(part).last).to_have_text(re.compile("^1 min [0-9]+ s$"))
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
        window.isHidden = true;
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    run.end_attempt("failed")
    assert questions.count_during(20) == 0
    with page.expect_response("**/live?*"):
        page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#s1a6")).to_contain_text("Failed")
    assert page.evaluate("window.line === document.getElementById('announcement')")
    assert complaints.take() == []

    notice = page.locator(".connection")
    expect(notice).to_have_attribute("aria-live", "polite")
    page.route("**/live?*", lambda route: route.fulfill(status=502, body="Bad gateway"))
    assert wait_for_poll(page).status == 502
    expect(notice).to_have_text("Connection lost. Trying again…")
    page.unroute("**/live?*")
    page.context.set_offline(True)
    # More and more seldom, but it does not give up.
    questions.count_during(30)
    assert 1 <= questions.count_during(60) <= 3
    expect(notice).to_be_in_viewport()
    run.end_attempt()
    with page.expect_response("**/live?*"):
        page.context.set_offline(False)
    expect(notice).to_be_empty()
    expect(page.locator("h1")).to_contain_text("Succeeded")
    expect(page.get_by_role("link", name="Re-run")).to_be_visible()
    assert questions.count_during(10) == 0

    follow(page, RunUnderWay().address)
    Run.objects.all().delete()
    page.clock.run_for(2_000)
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    # Browsers write on their console that a server does not answer, or not with a page.
    complaints.take()
