"""Every page in both themes, wide and on a phone: it fits its window, and neither axe nor the browser complains."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from flows.examples import load_examples
from flows.models import Flow
from runs.models import BulkAction, RunStatus, SavedView
from tests.api.asking import create_token
from tests.browser.conftest import Complaints
from tests.browser.editor import press_save, row
from tests.browser.run_under_way import RunUnderWay
from tests.browser.widths import list_sticking_out, open_all_folds, resize
from tests.conftest import IS_LONG
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.flows.loading import load_flow
from tests.runs.backtest_rows import ask, finish_in_thread, make_audited_flow, store_history
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address
from tests.runs.webhooks.deliveries import make_delivery
from tests.site.test_permissions import World, list_rules, world

__all__ = ["world"]

WIDTHS = (1_280, 390)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
AXE: str = Axe().axe_script
COLOURS = {"runOnly": ["color-contrast"]}
ALL_BUT_COLOURS = {"rules": {"color-contrast": {"enabled": False}}}
Asked = Mapping[tuple[str, int], dict[str, Any]]
ON_PHONES: Asked = {("light", 390): ALL_BUT_COLOURS} if IS_LONG else {}
ASKED: Asked = {("light", 1_280): {}, ("dark", 1_280): COLOURS, **ON_PHONES}
"""What axe is asked by theme and width: colours are the same at all widths, and the rest in both themes."""
ASKED_EVERYWHERE = ASKED if IS_LONG else {}
"""Of pages that show little. With more to show, they are among those on the way."""
KNOWN = {("link-in-text-block", "/delete/"), ("aria-prohibited-attr", "/admin/auth/")}
"""What Django’s own pages have."""
LONG = "W" * 100


def find_problems(page: Page, complaints: Complaints, asked: Asked = ASKED) -> list[str]:
    """What axe finds that is serious, whether the browser complains, and whether the page fits its window."""
    problems = [f"{page.url}: {complaint}" for complaint in complaints.take()]
    # What turns as long as something runs is never done.
    page.emulate_media(reduced_motion="reduce")
    if asked and not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    for width, theme in product(WIDTHS, THEMES):
        # In the dark nothing is wider.
        if theme == "dark" and (theme, width) not in asked:
            continue
        resize(page, width)
        page.emulate_media(color_scheme=theme)
        # What is fading in has colours of its own for a moment.
        page.evaluate("document.getAnimations().forEach((animation) => animation.finish())")
        problems += [f"{page.url}, {theme}, {width}: {part}" for part in list_sticking_out(page)]
        if (theme, width) in asked:
            options = {"resultTypes": ["violations"], "preload": False, **asked[theme, width]}
            found = page.evaluate("options => axe.run(options)", options)["violations"]
            problems += [f"{page.url}, {theme}, {width}: {describe(one)}" for one in found if is_grave(page, one)]
    resize(page, WIDTHS[0])
    # Axe sets styles inline, which the content security policy forbids.
    complaints.take()
    return problems


def is_grave(page: Page, violation: dict[str, Any]) -> bool:
    is_known = any(violation["id"] == rule and part in page.url for rule, part in KNOWN)
    return violation["impact"] in {"serious", "critical"} and not is_known


def describe(violation: dict[str, Any]) -> str:
    places = "\n    ".join(f"{node['html'][:160]}  {node['failureSummary'][:200]}" for node in violation["nodes"][:5])
    return f"{violation['id']}: {violation['help']} ({len(violation['nodes'])} places)\n    {places}"


def list_pages(world: World) -> Iterator[str]:
    """The addresses of all pages that a user sees who may do everything; some are alike for all models."""
    world.users["root"] = User.objects.get(username="ada")
    for address in map(world.fill, list_rules()):
        if re.search("/(history|delete)/$", address) and "/flows/flow/" not in address:
            continue
        answer = world.ask("root", "GET", address)
        if answer.status_code == 200 and not answer.streaming and b"</html>" in answer.content:
            yield address


@pytest.mark.parametrize("is_admin", [False, True], ids=["ours", "admin"])
def test_every_address(admin_page: Page, complaints: Complaints, world: World, is_admin: bool) -> None:
    addresses = [address for address in list_pages(world) if address.startswith("/admin/") is is_admin]
    assert len(addresses) > 15
    problems = []
    for address in addresses:
        admin_page.goto(address)
        open_all_folds(admin_page)
        problems += find_problems(admin_page, complaints, ASKED_EVERYWHERE)
    assert not problems, "\n".join(problems)


def show_runs(page: Page) -> Iterator[None]:
    page.goto("/runs/")
    yield
    run = make_retried_run(labels=["a-label-of-some-length" * 3] * 5, cost="0.5")
    for number in range(6):
        SavedView.objects.create(owner=User.objects.get(), name=f"A long name {number}", query=f"tokens={number}")
    page.goto("/runs/?tokens=0")
    expect(page.get_by_role("button", name="Delete this view")).to_be_visible()
    yield
    page.goto(f"/runs/?flow=colour-theme&tokens=1&cost=much&status=failed,errored&label={LONG}")
    yield
    page.locator("summary", has_text="More filters").click()
    expect(page.locator("datalist#known-code")).to_be_attached()
    yield
    page.goto("/runs/?flow=colour-theme")
    for name in ("All matching runs", "Export", "Save view"):
        page.locator("summary", has_text=name).click()
        yield
    note = {"run": run.pk, "failed": True, "sentence": "Its input doesn’t fit version 1: /" + "deep/" * 80}
    values = {"kind": "run_again", "run_count": 5, "query": f"q={LONG}", "failed": 1, "done": 3, "notes": [note]}
    action = BulkAction.objects.create(token="5eed" * 8, **values)
    for address in (
        f"bulk/run-again/?scope=chosen&run={run.pk}",
        "bulk/run-again/?scope=all&filters=flow%3Dcolour-theme",
        "bulk/cancel/?scope=chosen",
        f"bulk/{action.pk}/",
        f"export/csv?status={LONG}",
    ):
        page.goto(f"/runs/{address}")
        yield


def show_search_and_guides(page: Page) -> Iterator[None]:
    make_version(make_page_flow(title=LONG))
    page.goto("/runs/")
    page.keyboard.press("/")
    page.keyboard.type("W")
    expect(page.get_by_role("dialog").get_by_role("option", name=LONG)).to_be_visible()
    yield
    for address in ("/search/?q=run", "/guides/flow-reference/"):
        page.goto(address)
        yield


def show_a_run(page: Page) -> Iterator[None]:
    run = RunUnderWay(make_step(1, issue_severity_filter="critical"))
    for severity in ("low", "critical", "low"):
        issues = (make_issue(severity, audit="Length", path="/text"), make_issue("medium", path="/text"))
        run.end_attempt("failed", output={"text": f"{severity} and so on"}, issues=issues)
    page.goto(run.address)
    yield
    run.end_attempt()
    page.goto(f"{run.address}attempts/")
    yield
    page.goto(f"{run.address}steps/1/attempts/3/?diff=1&hide=lost")
    open_all_folds(page)
    # What changed, what became of issues, what the model was shown and that a filter is not valid: all are open.
    for part in (".listing.diff", ".lifecycle", ".feedback-line", ".messages li"):
        expect(page.locator(part).first).to_be_visible()
    yield
    page.goto(f"{run.address}steps/1/attempts/4/request/")
    open_all_folds(page)
    yield
    sentence = "Step 1 “Step 1” " + "failed and failed " * 20
    failed = make_retried_run(status="failed", end_sentence=sentence, blocking_step=1, blocking_attempt=2)
    for address in (run_address(failed), run_address(make_run()), "/runs/999/", "/issues/"):
        page.goto(address)
        yield
    page.goto(run_address(failed))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    yield
    interrupted = [make_attempt(1, number, "interrupted") for number in range(1, 61)]
    page.goto(run_address(make_stored_run(*interrupted, make_attempt(1, 61), spec=make_page_flow(make_step(1)))))
    yield


def show_compared_runs(page: Page) -> Iterator[None]:
    first = make_retried_run()
    issue = make_issue("high", audit="Length", path="/text")
    spec = make_page_flow(make_step(1, max_retries=9), make_step(2))
    output = {"text": "<img src=x onerror=alert(1)> " + "wide" * 200}
    second = make_stored_run(make_attempt(1, 1, "failed", issues=(issue, issue), output=output), spec=spec)
    for address in (f"?a={first.pk}&b={second.pk}", f"?a={first.pk}", "?a=tea"):
        page.goto(f"/runs/compare/{address}")
        open_all_folds(page)
        yield


def show_statistics(page: Page) -> Iterator[None]:
    page.goto("/")
    yield
    run = make_retried_run(status=RunStatus.ERRORED, end_sentence="It broke" + " and broke" * 40 + "x" * 200)
    RunUnderWay()
    for days in (0, 1, 3, 20):
        add_runs(run.version, day_ago(days), succeeded=5, failed=2, errored=1, cancelled=1, cost="1")
        add_steps(run.version, day_ago(days), begun=5, passed=4, attempts=9)
        add_audit(run.version, day_ago(days), LONG, fired=4, retried=2, fixed=1)
        add_issues(run.version, day_ago(days), "hex_format", issues=4, runs=2)
    for address in ("/?runs=lost", "/flows/?page=lost", "/flows/colour-theme/?model=gpt-5-mini&period=90d"):
        page.goto(address)
        open_all_folds(page)
        yield
    make_worker(host="a-host-with-a-very-long-name-in-a-very-long-domain.example.com")
    page.goto("/workers/")
    yield


def show_starting_a_run(page: Page) -> Iterator[None]:
    load_examples()
    names = Flow.objects.values_list("name", flat=True)
    for address in (*(f"{name}/?example=1" for name in names), f"{names[0]}/?example=1&view=json"):
        page.goto(f"/runs/new/{address}")
        open_all_folds(page)
        yield
    page.goto("/runs/new/colour-theme/")
    page.get_by_label("Brand").fill("x" * 500)
    page.get_by_role("button", name="Start run").first.click()
    expect(page.get_by_role("alert")).to_be_visible()
    yield


def show_an_account(page: Page) -> Iterator[None]:
    create_token(User.objects.get(), name=LONG)
    page.goto("/tokens/")
    for name, shown in (("nightly import", "#new-token"), (LONG, "#token-name-about .error")):
        page.get_by_label("Name").fill(name)
        page.get_by_role("button", name="Create token").click()
        expect(page.locator(shown)).to_be_visible()
        yield
    page.get_by_role("link", name="Revoke nightly").click()
    yield
    delivery = make_delivery("https://example.com/hooks")
    addresses = ("/webhooks/", f"/webhooks/{delivery.pk}/", "/trail/?action=signed_in&from=lost")
    for address in (*addresses, "/admin/", "/admin/runs/run/", "/admin/auth/user/add/"):
        page.goto(address)
        yield
    page.goto("/account/")
    page.get_by_label("Old password").fill("wrong")
    page.get_by_label("New password", exact=True).fill("123")
    page.get_by_label("New password confirmation").fill("124")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("alert")).to_have_count(1)
    yield
    page.context.clear_cookies()
    page.goto("/runs/")
    yield
    page.get_by_label("User name").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    yield


def show_the_editor(page: Page) -> Iterator[None]:
    load_examples()
    page.goto(reverse("admin:flows_flow_change", args=[Flow.objects.get(name="colour-theme").pk]))
    for name in ("Flow and limits", "Seed colours"):
        row(page, name).first.click()
        open_all_folds(page)
        yield
    page.locator("#editor-part").get_by_role("tab", name="Registered type").click()
    yield
    page.get_by_role("button", name="Add an audit").click()
    press_save(page)
    expect(page.get_by_role("button", name="problems to fix")).to_be_visible()
    open_all_folds(page)
    yield
    page.get_by_role("button", name="Edit as YAML").click()
    expect(page.locator("#flow-text")).to_be_visible()
    yield


def show_versions_and_files(page: Page) -> Iterator[None]:
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    document = flow.versions.latest("number").flow_spec.to_document()
    for retries in (1, 2):
        steps = [{**document["steps"][0], "max_retries": retries}, *document["steps"][1:]]
        load_flow(document={**document, "steps": steps}, note=f"Retries are {retries}.")
    for address in ("", "compare/?from=1&to=3", "1/restore/"):
        page.goto(f"/admin/flows/flow/{flow.pk}/versions/{address}")
        open_all_folds(page)
        yield
    for name in ("colour-theme", "No_Theme"):
        page.goto("/admin/flows/flow/upload/")
        page.get_by_label("Or paste its text").fill(f"name: {name}\nsteps: [{{name: One}}]\nunknown: 1\n")
        page.get_by_role("button", name="Check the file").click()
        expect(page.locator("form.upload-form")).to_be_visible()
        yield


def show_backtests(page: Page) -> Iterator[None]:
    version = store_history()[0].version
    long = {"description": LONG, "title": LONG}
    found = [finish_in_thread(ask(make_audited_flow(20, **long)))]
    found += [finish_in_thread(ask(version, leaves_out_each=True)), ask(make_audited_flow(6))]
    published = make_version(make_audited_flow(20, **long))
    addresses = [f"/backtests/{one.pk}/" for one in found]
    addresses += [f"{addresses[0]}?kind=refused", f"/flows/texts/backtests/?status={LONG}"]
    addresses += ["/flows/texts/?version=1", f"/flows/texts/versions/{published.number}/"]
    addresses += [f"/admin/flows/flow/{published.flow_id}/versions/{published.number}/make-live/"]
    for address in addresses:
        page.goto(address)
        open_all_folds(page)
        yield


@pytest.mark.parametrize(
    "show",
    [
        show_runs, show_search_and_guides, show_a_run, show_compared_runs, show_statistics, show_starting_a_run,
        show_an_account, show_the_editor, show_versions_and_files, show_backtests,
    ],
)  # fmt: skip
def test_what_pages_show_on_the_way(
    admin_page: Page, complaints: Complaints, show: Callable[[Page], Iterator[None]]
) -> None:
    make_version()
    problems = [problem for _ in show(admin_page) for problem in find_problems(admin_page, complaints)]
    assert not problems, "\n".join(problems)
