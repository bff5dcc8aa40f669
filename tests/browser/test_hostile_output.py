"""What a model, a provider or a flow may write: shown as it is, and inert."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page, expect

from runs.models import BulkAction, Run, RunStatus, WebhookDelivery, WebhookTry
from runs.rollup import count_ended_runs
from tests.browser.widths import assert_fits, open_all_folds, resize
from tests.engine.builders import NOON, make_attempt, make_error, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import run_address

NAME = '<script>alert("script")</script><img src=x onerror=alert(1)>'
"""Short enough for names."""
HOSTILE = (
    f'</code></details>{NAME}<a href="javascript:alert(2)">x</a>'
    '<div hx-get="/runs/" hx-trigger="load" style="position:fixed;inset:0">\'"&amp;'
)
OUTPUT = {HOSTILE: HOSTILE, "rows": [{HOSTILE: HOSTILE, "name": NAME}]}
RIGHT_TO_LEFT = "abc\u202edlrow\u202c \u05d0\u05d1\u05d2"


def nest(depth: int) -> Any:
    value: Any = "the innermost"
    for level in range(depth):
        value = {"level": value} if level % 2 else [value]
    return value


def make_hostile_run() -> Run:
    """A run in which everything that others write is hostile."""
    spec = make_page_flow(make_step(1, name=NAME, system_message=HOSTILE), title=NAME)
    issue = make_issue(
        "critical",
        HOSTILE,
        code=NAME,
        audit=NAME,
        path=f"/{HOSTILE.replace('~', '~0').replace('/', '~1')}",
        suggestions=(HOSTILE, RIGHT_TO_LEFT),
        context={HOSTILE: HOSTILE},
        vendor=HOSTILE,
    )
    request = {"model": HOSTILE, "messages": [{"role": HOSTILE, "content": HOSTILE}], "tools": [{"type": HOSTILE}]}
    shared: dict[str, Any] = {"request": request, "model": NAME, "input": {HOSTILE: HOSTILE}}
    return make_stored_run(
        make_attempt(1, 1, "failed", output=OUTPUT, raw_output=HOSTILE, issues=(issue,), **shared),
        make_attempt(1, 2, "errored", error=make_error(message=HOSTILE), failure_reason=HOSTILE, **shared),
        make_attempt(1, 3, "invalid", output=None, raw_output=HOSTILE, **shared),
        make_attempt(1, 4, output={"text": RIGHT_TO_LEFT}, **shared),
        spec=spec,
        status=RunStatus.FAILED,
        end_sentence=HOSTILE,
        input={HOSTILE: HOSTILE},
    )


def store_hostile_work(run: Run) -> tuple[str, str]:
    """The addresses of a bulk action and a delivery that quote what others wrote."""
    note = {"run": run.pk, "failed": True, "sentence": HOSTILE}
    action = BulkAction.objects.create(token="5eed" * 8, kind="run_again", notes=[note])
    values = {"event": "run.failed", "url": "https://hooks.example.com/", "host": "hooks.example.com"}
    delivery = WebhookDelivery.objects.create(run=run, body=json.dumps({HOSTILE: HOSTILE}), try_count=1, **values)
    answer = {"status": 500, "problem": HOSTILE, "response": HOSTILE, "started_at": NOON, "ended_at": NOON}
    WebhookTry.objects.create(delivery=delivery, number=1, **answer)
    return f"/runs/bulk/{action.pk}/", f"/webhooks/{delivery.pk}/"


def test_what_others_wrote_stays_text_and_in_its_window(admin_page: Page) -> None:
    run, other = make_hostile_run(), make_hostile_run()
    while count_ended_runs():
        pass
    addresses = (
        run_address(run),
        *(f"{run_address(run)}steps/1/attempts/{number}/" for number in (1, 2, 3)),
        *(f"{run_address(run)}steps/1/attempts/1/?view={view}" for view in ("table", "json")),
        f"{run_address(run)}attempts/",
        "/runs/",
        "/runs/?q=onerror",
        "/",
        "/flows/",
        f"/flows/{run.flow.name}/",
        f"/runs/compare/?a={run.pk}&b={other.pk}",
        *store_hostile_work(run),
        f"{run_address(run)}steps/1/attempts/1/request/",
        "/runs/new/",
    )
    resize(admin_page, 390)
    asked: set[str] = set()
    admin_page.on("request", lambda request: asked.add(request.url.rpartition("/")[2]))
    for address in addresses:
        admin_page.goto(address)
        open_all_folds(admin_page)
        main = admin_page.locator("main")
        expect(main).to_contain_text(NAME)
        expect(main.locator("script, img, iframe, [style], [onerror], [hx-get='/runs/']")).to_have_count(0)
        expect(admin_page.locator("a[href^='javascript:' i]")).to_have_count(0)
        if "q=" in address:
            expect(main.locator("tr.excerpts mark").first).to_have_text("onerror")
        assert_fits(admin_page)
    assert "x" not in asked
    # Marks that turn text around are shown by their code.
    admin_page.goto(f"{run_address(run)}steps/1/attempts/4/")
    open_all_folds(admin_page)
    line = admin_page.locator("#pane .attempt-output :is(.text-line, .line)", has_text="abc")
    expect(line).to_contain_text("\\u202e")
    assert "\u202e" not in admin_page.content()

    outputs: list[dict[str, Any]] = [
        {"text": "word " * 900_000 + "x" * 500_000},
        {"deep": nest(97)},
        {"x" * 5_000: "y" * 5_000},
        {"rows": [{"a": 1, "b": 2}] * 2_000},
    ]
    for output in outputs:
        issue = make_issue("high", "Look at this.", path="/" + next(iter(output)))
        run = make_stored_run(make_attempt(1, 1, "failed", output=output, issues=(issue,)))
        for view in ("text", "table", "json"):
            admin_page.goto(f"{run_address(run)}?view={view}")
            expect(admin_page.get_by_text("Look at this.").first).to_be_visible()
            assert_fits(admin_page)
