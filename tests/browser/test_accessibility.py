"""What assistive technology needs is on every page: names of controls, contrast, order, landmarks; in both themes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from flows.examples import load_examples
from flows.models import Flow
from flows.portability import load_flow
from runs.models import Attempt, BulkAction, Issue, Run, SavedView, TokenScope
from tests.api.asking import make_token
from tests.browser.run_under_way import RunUnderWay
from tests.browser.widths import open_all_folds
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import run_address
from tests.runs.webhooks.deliveries import make_delivery

Theme = Literal["light", "dark"]
GRAVE = ("serious", "critical")
CONTRAST = "color-contrast"
THEMES: tuple[Theme, ...] = ("light", "dark")
AXE: str = Axe().axe_script
"""Half a megabyte of script: a page gets it once."""


TEXTS = """() => {
    const styles = new Map();
    const describe = (part) => {
        if (!styles.has(part)) {
            const style = getComputedStyle(part);
            const names = ["backgroundColor", "backgroundImage", "opacity", "filter", "mixBlendMode", "clipPath"];
            const own = names.map((name) => style[name]).join();
            const isPlaced = ["absolute", "fixed", "sticky"].includes(style.position)
                || style.transform !== "none" || style.float !== "none";
            const above = part.parentElement ? describe(part.parentElement) : { look: "", isPlaced: false };
            styles.set(part, { look: `${above.look}/${own}`, isPlaced: isPlaced || above.isPlaced });
        }
        return styles.get(part);
    };
    const chosen = new Map();
    for (const part of document.body.querySelectorAll("*")) {
        const texts = [...part.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
        const length = texts.map((node) => node.data.trim()).join("").length;
        const isControl = part.matches("input, select, textarea, button");
        if (!(length || isControl) || !part.checkVisibility()) continue;
        const { look, isPlaced } = describe(part);
        const style = getComputedStyle(part);
        const names = ["color", "fontSize", "fontWeight", "textShadow", "display", "webkitTextFillColor"];
        const isAlone = isPlaced || isControl || part.id || part.closest("label, [aria-disabled], :disabled, svg");
        const key = isAlone ? part : [part.tagName, ...names.map((name) => style[name]), look].join();
        if (!chosen.has(key) || chosen.get(key).length < length) chosen.set(key, { part, length });
    }
    return [...chosen.values()].map(({ part }) => part);
}"""
"""The texts of a page that differ in anything which their contrast depends on: of those that look alike, the longest.

What is placed over other parts, what is a control and what may belong to one that is disabled stands for itself.
"""


def assert_accessible(page: Page) -> None:
    """Axe finds nothing serious on the page, in both themes; what it finds is named with its elements."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        # One that is fading in has colours of its own for a moment.
        page.evaluate("Promise.all(document.getAnimations().map((animation) => animation.finished))")
        # Nearly all the time goes into contrast. All but the colours is the same in the other theme.
        found = _ask_axe(page, f"({TEXTS})()", runOnly=[CONTRAST])
        if theme == "light":
            found += _ask_axe(page, "document", rules={CONTRAST: {"enabled": False}})
        assert [_describe(violation) for violation in found if violation["impact"] in GRAVE] == [], theme


def _ask_axe(page: Page, where: str, **options: Any) -> list[dict[str, Any]]:
    options |= {"resultTypes": ["violations"], "preload": False}
    ask = f"options => axe.run({where}, options).then((found) => found.violations)"
    violations: list[dict[str, Any]] = page.evaluate(ask, options)
    return violations


def assert_accessible_on_a_phone(page: Page) -> None:
    """The same where the window is as narrow as a phone's: what is laid out otherwise there, boxes that scroll."""
    page.set_viewport_size({"width": 390, "height": 800})
    assert_accessible(page)
    page.set_viewport_size({"width": 1280, "height": 720})


def _describe(violation: dict[str, Any]) -> str:
    places = "\n    ".join(f"{node['html'][:160]}  {node['failureSummary'][:200]}" for node in violation["nodes"][:5])
    return f"{violation['id']}: {violation['help']} ({len(violation['nodes'])} places)\n    {places}"


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    """Axe itself sets styles inline: in these tests no content security policy is kept. All others keep it."""
    return {**browser_context_args, "bypass_csp": True}


def store_three_versions() -> Flow:
    """The colour theme, changed twice since its first version."""
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    document = flow.versions.latest("number").flow_spec.to_document()
    for retries in (1, 2):
        steps = [{**document["steps"][0], "max_retries": retries}, *document["steps"][1:]]
        load_flow(document={**document, "steps": steps}, note=f"Retries are {retries}.")
    return flow


def test_the_flow_editor(admin_page: Page) -> None:
    flow = store_three_versions()
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    assert_accessible(admin_page)
    open_all_folds(admin_page)
    assert_accessible(admin_page)


def test_the_flow_editor_with_mistakes(admin_page: Page) -> None:
    admin_page.goto(reverse("admin:flows_flow_add"))
    assert_accessible(admin_page)
    admin_page.get_by_role("button", name="Add a step").last.click()
    admin_page.get_by_role("button", name="Add an audit").last.click()
    admin_page.get_by_role("button", name="Save", exact=True).click()
    expect(admin_page.get_by_role("alert")).to_be_visible()
    open_all_folds(admin_page)
    assert_accessible(admin_page)


def test_lists_and_forms_of_the_admin(admin_page: Page) -> None:
    store_three_versions()
    make_retried_run()
    admin_page.goto(reverse("admin:index"))
    assert_accessible(admin_page)
    for model in site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        admin_page.goto(reverse(f"{name}_changelist"))
        assert_accessible(admin_page)
    for model in (Run, Attempt, Issue):
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        admin_page.goto(reverse(name, args=[model._default_manager.latest("pk").pk]))
        assert_accessible(admin_page)


def test_the_schema_maker(admin_page: Page) -> None:
    load_examples()
    flow = Flow.objects.get(name="invoice-extraction")
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    admin_page.locator("#steps-0").get_by_role("button", name="Make a schema…").click()
    dialog = admin_page.get_by_role("dialog")
    expect(dialog.get_by_role("table")).to_be_visible()
    for name in ("As a table", "From an example", "From a Python type"):
        dialog.get_by_role("tab", name=name).click()
        assert_accessible(admin_page)


def test_trying_a_step(admin_page: Page) -> None:
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    admin_page.locator("#steps-0").get_by_role("button", name="Try this step").click()
    expect(admin_page.locator("#try-title")).to_be_focused()
    assert_accessible(admin_page)


def test_versions_and_their_difference(admin_page: Page) -> None:
    flow = store_three_versions()
    admin_page.goto(reverse("admin:flows_flow_versions", args=[flow.pk]))
    assert_accessible(admin_page)
    admin_page.goto(reverse("admin:flows_flow_compare", args=[flow.pk]) + "?from=1&to=3")
    open_all_folds(admin_page)
    assert_accessible(admin_page)
    admin_page.goto(reverse("admin:flows_flow_restore", args=[flow.pk, 1]))
    assert_accessible(admin_page)


def test_plug_ins_and_flow_files(admin_page: Page) -> None:
    load_examples()
    admin_page.goto(reverse("admin:flows_flow_plugins"))
    open_all_folds(admin_page)
    assert_accessible(admin_page)
    admin_page.goto(reverse("admin:flows_flow_upload"))
    assert_accessible(admin_page)


def test_pages_of_runs(admin_page: Page) -> None:
    load_examples()
    run = make_retried_run()
    for address in ("/runs/", run_address(run), "/workers/", "/runs/new/", "/runs/999/"):
        admin_page.goto(address)
        assert_accessible(admin_page)
        if address in ("/runs/", run_address(run)):
            assert_accessible_on_a_phone(admin_page)
    for name in Flow.objects.values_list("name", flat=True):
        admin_page.goto(reverse("runs:start", args=[name]))
        assert_accessible(admin_page)


def test_two_runs_beside_each_other(admin_page: Page) -> None:
    first = make_retried_run()
    issue = make_issue("high", audit="Length", path="/text")
    spec = make_page_flow(make_step(1, max_retries=9), make_step(2))
    second = make_stored_run(make_attempt(1, 1, "failed", issues=(issue, issue)), spec=spec)
    for address in (f"?a={first.pk}&b={second.pk}", f"?a={first.pk}", "?a=tea"):
        admin_page.goto(f"/runs/compare/{address}")
        open_all_folds(admin_page)
        assert_accessible(admin_page)
        if "&b=" in address:
            assert_accessible_on_a_phone(admin_page)


def test_the_course_of_issues_and_what_the_model_was_told(admin_page: Page) -> None:
    run = RunUnderWay(make_step(1, issue_severity_filter="critical"))
    for severity in ("low", "critical", "low"):
        issues = (make_issue(severity, audit="Length", path="/text"), make_issue("medium", path="/text"))
        run.end_attempt("failed", output={"text": f"{severity} and so on"}, issues=issues)
    run.end_attempt()
    admin_page.goto(f"{run.address}?diff=s1a2,s1a3")
    open_all_folds(admin_page)
    expect(admin_page.get_by_text("Hidden from the model").first).to_be_visible()
    # What changed, what became of issues, and what the model saw: all three are open.
    for part in (".listing.diff", ".lifecycle", ".feedback-line"):
        expect(admin_page.locator(part).first).to_be_visible()
    assert_accessible(admin_page)
    assert_accessible_on_a_phone(admin_page)
    admin_page.goto(f"{run.address}steps/1/attempts/4/request/")
    open_all_folds(admin_page)
    assert_accessible(admin_page)


def test_filters_and_saved_views(admin_page: Page) -> None:
    make_retried_run(labels=["pilot"])
    SavedView.objects.create(owner=User.objects.get(), name="Mine", query="status=succeeded", is_shared=True)
    for query in ("status=succeeded", "flow=colour-theme&cost=0&tokens=1&status=failed,errored&from=lost"):
        admin_page.goto(f"/runs/?{query}")
        assert_accessible(admin_page)
    admin_page.locator("summary", has_text="More filters").click()
    expect(admin_page.locator("datalist#known-code")).to_be_attached()
    assert_accessible(admin_page)


def test_messages(admin_page: Page) -> None:
    run = make_retried_run()
    flow_address = reverse("runs:flow", args=[run.flow.name])
    for address in ("/?runs=lost", "/flows/?page=lost", f"{flow_address}?runs=lost", "/runs/?statsu=failed"):
        admin_page.goto(address)
        expect(admin_page.get_by_role("status").locator(".messages li")).to_have_count(1)
        assert_accessible(admin_page)
    admin_page.goto(f"{run_address(run)}?hide=lost")
    expect(admin_page.get_by_role("status").locator(".messages li")).to_have_count(1)
    assert_accessible(admin_page)
    SavedView.objects.create(owner=User.objects.get(), name="Mine", query="status=succeeded")
    admin_page.goto("/runs/?status=succeeded")
    admin_page.get_by_role("button", name="Delete this view").click()
    expect(admin_page.get_by_role("status")).to_contain_text(["The view “Mine” is deleted."])
    assert_accessible(admin_page)


def test_bulk_actions_and_exports(admin_page: Page) -> None:
    run = make_retried_run(cost="0.5")
    note = {"run": run.pk, "failed": True, "sentence": "Its input doesn’t fit version 2."}
    values = {"kind": "run_again", "run_count": 5, "query": "flow=colour-theme"}
    action = BulkAction.objects.create(token="5eed" * 8, failed=1, done=3, notes=[note], **values)
    admin_page.goto("/runs/?flow=colour-theme")
    for name in ("All that match", "Export"):
        admin_page.locator("summary", has_text=name).click()
        assert_accessible(admin_page)
    for address in (
        f"/runs/bulk/run-again/?scope=chosen&run={run.pk}",
        "/runs/bulk/run-again/?scope=all&filters=flow%3Dcolour-theme",
        "/runs/bulk/cancel/?scope=chosen",
        f"/runs/bulk/{action.pk}/",
        "/runs/bulk/",
        "/runs/export/csv?status=lost",
    ):
        admin_page.goto(address)
        assert_accessible(admin_page)


def test_overview_and_flows(admin_page: Page) -> None:
    # What turns as long as something runs is never done.
    admin_page.emulate_media(reduced_motion="reduce")
    admin_page.goto("/")
    assert_accessible(admin_page)
    run = make_retried_run(status="failed", blocking_step=1, blocking_attempt=2)
    RunUnderWay()
    for days in (0, 1, 3):
        add_runs(run.version, day_ago(days), succeeded=5, failed=2, errored=1, cancelled=1, cost="1")
        add_steps(run.version, day_ago(days), begun=5, passed=4, attempts=9)
        add_audit(run.version, day_ago(days), "Hex colours", fired=4, retried=2, fixed=1)
        add_issues(run.version, day_ago(days), "hex_format", issues=4, runs=2)
    for address in ("/", "/flows/", "/flows/colour-theme/", "/flows/colour-theme/?model=gpt-5-mini&period=12m"):
        admin_page.goto(address)
        open_all_folds(admin_page)
        assert_accessible(admin_page)
        if address in ("/", "/flows/colour-theme/"):
            assert_accessible_on_a_phone(admin_page)


def test_the_help_with_the_keys_of_a_run(admin_page: Page) -> None:
    admin_page.goto(run_address(make_retried_run()))
    admin_page.keyboard.press("?")
    expect(admin_page.get_by_role("dialog")).to_be_visible()
    assert_accessible(admin_page)


def test_signing_in(page: Page) -> None:
    page.goto(reverse("login"))
    assert_accessible(page)


def test_api_tokens(admin_page: Page) -> None:
    load_examples()
    ada = User.objects.get()
    make_token(ada, name="CI")
    make_token(ada, TokenScope.READ, name="ending", expiry=timedelta(days=2))
    make_token(ada, name="leaked", revoked_at=timezone.now())
    admin_page.goto("/tokens/")
    assert_accessible(admin_page)
    for name, shown in (("nightly import", "#new-token"), ("CI", "#token-name-problem")):
        admin_page.get_by_label("Name").fill(name)
        admin_page.get_by_role("button", name="Make the token").click()
        expect(admin_page.locator(shown)).to_be_visible()
        assert_accessible(admin_page)
    admin_page.get_by_role("link", name="Revoke CI").click()
    assert_accessible(admin_page)


def test_webhooks(admin_page: Page) -> None:
    delivery = make_delivery("https://example.com/hooks")
    for address in ("/webhooks/", f"/webhooks/{delivery.pk}/"):
        admin_page.goto(address)
        assert_accessible(admin_page)


def test_the_trail_and_ones_own_account(admin_page: Page) -> None:
    load_examples()
    for address in ("/trail/", "/trail/?action=signed_in&from=lost", "/account/"):
        admin_page.goto(address)
        assert_accessible(admin_page)
    admin_page.get_by_label("Old password").fill("wrong")
    admin_page.get_by_label("New password", exact=True).fill("123")
    admin_page.get_by_label("New password confirmation").fill("124")
    admin_page.get_by_role("button", name="Change the password").click()
    expect(admin_page.get_by_role("alert")).to_have_count(1)
    assert_accessible(admin_page)
