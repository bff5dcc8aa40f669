"""The panel beside the flow editor in a real browser: it follows what one types. What it says: tests/runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from flows import providers
from flows.engine.judging_process import close_processes
from flows.engine.spec import AuditSpec
from runs.models import Run
from tests.browser.editor import field, open_flow, row
from tests.browser.widths import assert_fits
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.runs.pages.history_builders import make_stored_run

RULE = "/steps/0/audits/0/rule"
LONG = AuditSpec(name="Long", rule="output.text.size() > 2", path="'/text'")


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    close_processes()


def test_the_panel_follows_what_one_types_and_a_try_sends_one_call(
    admin_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "SIMULATED_LATENCY", 0.0)
    page, spec = admin_page, make_flow(make_step(1, audits=(LONG,)), make_step(2))
    open_flow(page, *spec.steps)
    for text in ("tea", "شاي أخضر", "green tea"):
        make_stored_run(make_attempt(1, output={"text": text}), spec=spec)
    newest = Run.objects.latest("pk")
    page.reload()
    row(page, "Long").click()
    rule, live = field(page, RULE), page.get_by_role("complementary", name="Live check")
    headline = live.locator("#live-judged h3")
    expect(headline).to_have_text("Judged again on the last 3 outputs: 3 pass, 0 fail; none would change")
    rule.fill("output.text.size() > 8")
    expect(headline).to_have_text("Judged again on the last 3 outputs: 1 pass, 2 fail; 2 would change")
    expect(live.locator(".live-square.would-change")).to_have_count(2)
    expect(live.locator(".live-value").first).to_have_attribute("dir", "rtl")
    # Half a rule can't be judged: the last answer stays, and the problem is told with a way to it.
    rule.fill("output.text.size() >")
    expect(live.get_by_text("Can’t be judged.")).to_be_visible()
    expect(live.locator(".is-stale .live-square")).to_have_count(3)
    live.locator("#live-lint a").first.click()
    expect(rule).to_be_focused()
    rule.fill("output.text.size() > 2")
    expect(headline).to_have_text(re.compile("3 pass, 0 fail; none would change"))
    expect(live.locator(".is-stale")).to_have_count(0)

    # By keyboard and on a phone. Nothing would change: the list is open.
    page.set_viewport_size({"width": 390, "height": 844})
    fold = live.locator("#live-others > summary")
    fold.press("Enter")
    expect(live.locator("#live-others[open]")).to_have_count(0)
    fold.press("Enter")
    expect(live.get_by_role("link", name=f"#{newest.pk}")).to_be_visible()
    # What is unfolded, and what has the focus, stays so with the next answer.
    page.evaluate("ToolFlow.flow.set('/steps/0/audits/0/rule', 'output.text.size() > 3')")
    expect(live.locator(".live-square.would-change")).to_have_count(1)
    expect(live.locator("#live-others[open] > summary")).to_be_focused()
    live.locator("#live-try > summary").press("Enter")
    expect(live.get_by_label("On", exact=True)).to_have_value(str(newest.pk))
    live.get_by_role("button", name="Invent an output").press("Enter")
    expect(live.locator("#try-verdict .state").first).to_be_visible()
    assert_fits(page)

    live.locator("#try-message-1 > summary").click()
    field(page, "/steps/0/system_message").fill("Answer in verse.")
    expect(live.locator("#try-message-1[open]")).to_contain_text("Answer in verse.")
    calls: list[str] = []
    page.on(
        "request", lambda request: calls.append(request.url) if "call" in (request.post_data or "")[-200:] else None
    )
    live.get_by_role("button", name="Send to the model once").dblclick()
    expect(live.get_by_text("What the model answered")).to_be_visible()
    # The answer is at hand, to be held against other rules.
    live.locator("#try-output-box > summary").click()
    expect(live.get_by_label("Output (JSON)")).not_to_be_empty()
    assert (len(calls), Run.objects.count()) == (1, 3)
    # Another step has outputs of its own.
    row(page, "Step 2").click()
    expect(live.get_by_text("No outputs to judge yet")).to_be_visible()
