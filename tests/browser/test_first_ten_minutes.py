"""A newcomer's first ten minutes: sample history, an audit that only costs, and what came of leaving it out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connection
from playwright.sync_api import Locator, Page, expect

from flows.models import Flow
from runs.models import Backtest, BulkAction, Run
from runs.rollup import count_ended_runs
from runs.worker import event_loop
from tests.browser.editor import outline, row
from tests.runs.backtest_rows import finish_in_thread

MAX_CLICKS = 13
AUDIT = "Closing line"
CHANGE = "\N{MINUS SIGN}37.5 %"


class Newcomer:
    """Clicks, and counts the clicks."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def press(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name))

    def follow(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True))


def work(action: Callable[[], Any]) -> None:
    """Do what a worker would do meanwhile; the browser's event loop keeps the database from this thread."""

    def act() -> None:
        action()
        connection.close()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(act).result()


def drain() -> None:
    asyncio.run(event_loop.Drain(leaves_when_idle=True).run())
    while count_ended_runs():
        pass


def test_the_useless_audit_is_found_removed_and_the_saving_comes_as_predicted(admin_page: Page) -> None:
    page, user = admin_page, Newcomer(admin_page)
    page.goto("/")
    user.press("Fill with sample history")
    expect(page.get_by_text("400 sample runs added")).to_be_visible()
    user.follow("Order confirmation (sample)")
    user.press("Work out “without it”")
    finish_in_thread(Backtest.objects.get())
    # The column comes by itself.
    audit = page.locator("#audits").get_by_role("row").filter(has_text=AUDIT)
    expect(audit).to_contain_text("Only costs retries")
    expect(audit).to_contain_text("24 runs of 100 sooner")
    expect(page.locator("#audits").get_by_role("row").filter(has_text="8 runs that never passed")).to_contain_text(
        "Pieces of each article"
    )

    user.follow("Edit")
    user.click(row(page, AUDIT))
    user.click(page.get_by_role("button", name="Delete", exact=True).and_(page.locator(":visible")))
    expect(row(page, AUDIT)).to_have_count(0)
    expect(page.locator("#editor-part [data-saving=max_retries]")).to_contain_text("Over the last 92 runs")
    user.press("What would this have changed?")
    expect(page.get_by_role("heading", name="Backtest")).to_be_visible()
    finish_in_thread(Backtest.objects.latest("pk"))
    expect(page.get_by_text("Of 100 runs 76 end the same, 24 sooner (24 retries, $0.0960)").first).to_be_visible()

    user.follow("Edit draft")
    # As it was left: at the step, and what was deleted can come back.
    expect(page.locator("#part-title")).to_contain_text("Write the confirmation")
    user.press("Undo")
    expect(row(page, AUDIT)).to_have_count(1)
    page.keyboard.press("Control+Shift+Z")
    expect(row(page, AUDIT)).to_have_count(0)
    user.press("Save and make live")
    expect(outline(page)).to_be_visible()
    user.follow("Version 2 is live")
    prediction = page.get_by_role("region", name="Prediction")
    expect(prediction).to_contain_text(
        f"Retries: predicted {CHANGE}. The outcome appears here after 10 runs (0 so far)"
    )

    user.follow("Re-run recent inputs")
    user.press("Re-run")
    expect(page.get_by_role("heading", name="Re-run")).to_be_visible()
    assert BulkAction.objects.get().is_unfinished is False
    work(drain)
    flow = Flow.objects.get(name="seeded-order-confirmation")
    assert Run.objects.filter(version=flow.live_version).exclude(ended_at=None).count() == 20
    page.goto("/flows/seeded-order-confirmation/versions/2/")
    expect(prediction).to_contain_text(f"Retries: predicted {CHANGE}, since then {CHANGE} (20 runs)")
    assert user.clicks <= MAX_CLICKS
