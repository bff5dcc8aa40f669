"""History in the admin: what its lists and pages show, that nothing can be changed, and what they cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from flows.engine.history import Severity
from runs.admin import history, runs
from runs.models import Attempt, Issue, Run, Step
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version
from tests.runs.history_rows import add_attempt, list_keys
from tests.runs.pages.reading import count_queries, get_page
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

KINDS = ("run", "attempt", "issue")
RUNS, ATTEMPTS, ISSUES = LISTS = [f"/admin/runs/{kind}/" for kind in KINDS]


@pytest.fixture
def reader(client: Client) -> Client:
    """A browser in which a user is signed in who may see everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def list_pages(attempt: Attempt) -> dict[str, str]:
    """The addresses of an attempt and of the rows around it, by kind. It must have an issue."""
    keys = (attempt.step.run_id, attempt.pk, attempt.issues.earliest("pk").pk)
    return {kind: f"/admin/runs/{kind}/{key}/change/" for kind, key in zip(KINDS, keys, strict=True)}


# Reading


def test_an_issue_leads_to_its_attempt_and_to_all_that_are_alike(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("high",))
    for address in (ISSUES, list_pages(attempt)["issue"]):
        page = get_page(reader, address)
        assert f'href="/runs/{attempt.step.run_id}/steps/1/attempts/1/?issue=0"' in page
        assert 'href="/admin/runs/issue/?code=high_code"' in page
        assert 'href="/admin/runs/issue/?audit=Audit+of+high"' in page
    assert f'href="{list_pages(attempt)["attempt"]}"' in page


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("critical thing", {1}),
        ("THING", {1, 2}),
        ("low_code", {2}),
        ("audit of", {1, 2}),
        ("critical low", set()),
        ("100%", set()),
        (" ", {1, 2}),
    ],
)
def test_issues_are_searched_by_words_of_message_code_and_audit(reader: Client, query: str, expected: set[int]) -> None:
    issues = [add_attempt(make_run(), severities=(name,)).issues.get().pk for name in ("critical", "low")]
    assert set(list_keys(reader, ISSUES, q=query)) == {issues[number - 1] for number in expected}


def test_a_search_reads_the_newest_issues_and_keeps_the_filters(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_SEARCHED", 1)
    run = make_run()
    old, new = (add_attempt(run, number, ("low",)).issues.get().pk for number in (1, 2))
    assert list_keys(reader, ISSUES, q="thing", severity="low") == [new] != [old]
    assert list_keys(reader, ISSUES, q="thing", severity="high") == []
    page = get_page(reader, f"{ISSUES}?q=thing&severity=low")
    assert page.count('<input type="hidden" name="q" value="thing">') == 4
    assert '<input type="hidden" name="severity" value="low">' in page
    with CaptureQueriesContext(connection) as queries:
        list_keys(reader, ISSUES, q="thing")
    assert not any("COUNT(" in query["sql"].upper() for query in queries)
    assert all("LIMIT" in query["sql"] for query in queries if 'FROM "runs_issue"' in query["sql"])


def test_what_a_model_wrote_is_shown_as_text(reader: Client) -> None:
    evil = "<script>alert(1)</script>\u202e"
    document = {evil: [evil]}
    run = make_run(input=document, end_sentence=evil)
    texts: dict[str, Any] = dict.fromkeys(("failure_reason", "model", "finish_reason", "response_id"), evil)
    documents: dict[str, Any] = dict.fromkeys(("input", "output", "raw_output", "request"), document)
    attempt = add_attempt(
        run, severities=("high",), error={"message": evil}, plugins={evil: evil}, **texts, **documents
    )
    Issue.objects.update(
        **dict.fromkeys(("code", "audit", "description"), evil), context=document, suggestions=[evil], path=f"/{evil}"
    )
    Step.objects.update(name=evil)
    for url in (*LISTS, *list_pages(attempt).values()):
        page = get_page(reader, url)
        assert "<script>alert" not in page
        assert InlineFinder(page).found == []
        assert "\u202e" not in page
        assert "&lt;script&gt;" in page or url == RUNS


# Nothing changes


@pytest.mark.parametrize("kind", KINDS)
def test_no_user_adds_changes_or_deletes_history(reader: Client, kind: str) -> None:
    attempt = add_attempt(make_run(), severities=("low",))
    page = list_pages(attempt)[kind].removesuffix("/change/")
    assert reader.get(f"/admin/runs/{kind}/add/").status_code == 403
    assert reader.post(f"{page}/change/", {"outcome": "passed", "status": "queued"}).status_code == 403
    assert reader.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": page.rpartition("/")[2], "post": "yes"}
    reader.post(f"/admin/runs/{kind}/", action)
    assert Issue.objects.count() == Run.objects.count() == 1
    shown = get_page(reader, f"{page}/change/")
    assert 'name="_save"' not in shown and "<textarea" not in shown


# Filters


@pytest.mark.parametrize(
    ("url", "filters", "expected"),
    [
        (RUNS, {"severity": "critical"}, {1}),
        (RUNS, {"severity": "low"}, {1, 2}),
        (RUNS, {"status": "failed"}, {2}),
        (RUNS, {"reason": "step_failed", "status": "succeeded"}, set()),
        (RUNS, {"flow": "other"}, {3}),
        (RUNS, {"flow": "other", "version": "1"}, {3}),
        (ATTEMPTS, {"severity": "high"}, {1, 2}),
        (ATTEMPTS, {"severity": "low", "code": "high_code"}, {1, 2}),
        # Of one and the same issue.
        (ATTEMPTS, {"severity": "critical", "code": "high_code"}, set()),
        (ATTEMPTS, {"audit": "Audit of critical"}, {1}),
        (ATTEMPTS, {"audit": "audit of critical"}, set()),
        (ATTEMPTS, {"outcome": "passed"}, {3}),
        (ATTEMPTS, {"outcome": "running"}, {2}),
        (ATTEMPTS, {"flow": "other"}, {3}),
        (ISSUES, {"severity": "critical"}, {1}),
        (ISSUES, {"code": "high_code", "outcome": "failed"}, {1, 2}),
        (ISSUES, {"flow": "other", "version": "1"}, set()),
    ],
)
def test_lists_are_narrowed_by_filters(reader: Client, url: str, filters: Any, expected: set[int]) -> None:
    one, two = make_run(), make_run()
    three = make_run(make_version(make_flow().model_copy(update={"name": "other", "title": "Other"})))
    add_attempt(one, 1, (Severity.CRITICAL, Severity.HIGH))
    add_attempt(two, 1, (Severity.HIGH,))
    add_attempt(two, 2, outcome="")
    add_attempt(three)
    Run.objects.filter(pk=two.pk).update(
        status="failed", end_reason="step_failed", ended_at=datetime(2026, 11, 21, tzinfo=UTC)
    )
    path = {RUNS: "pk", ATTEMPTS: "step__run", ISSUES: "attempt__step__run"}[url]
    model: Any = {RUNS: Run, ATTEMPTS: Attempt, ISSUES: Issue}[url]
    found = set(model.objects.filter(pk__in=list_keys(reader, url, **filters)).values_list(path, flat=True))
    assert found == {[one, two, three][number - 1].pk for number in expected}


def test_days_are_those_of_the_site_and_the_last_is_included(reader: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    moments = [datetime(2026, 11, day, hour, 30, tzinfo=UTC) for day, hour in ((19, 22), (19, 23), (20, 22), (20, 23))]
    run = make_run()
    early, first, last, late = (add_attempt(run, n, ("low",), started_at=at) for n, at in enumerate(moments, start=1))
    day = {"from": "2026-11-20", "to": "2026-11-20"}
    assert list_keys(reader, ATTEMPTS, **day) == [last.pk, first.pk]
    assert list_keys(reader, ISSUES, **day) == [last.issues.get().pk, first.issues.get().pk]
    assert list_keys(reader, ATTEMPTS, to="2026-11-19") == [early.pk]
    assert list_keys(reader, ATTEMPTS, **{"from": "2026-11-21"}) == [late.pk]
    Run.objects.update(created_at=moments[1])
    assert list_keys(reader, RUNS, **day) == [run.pk]


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ("", "2024", None),
        ("from=2025-01-01&to=2025-12-31", "January 2025", 12),
        ("from=2024-02-01&to=2024-02-29&code=x", "1 Feb", 29),
        ("from=+2024-02-01&to=+2024-02-29", "1 Feb", 29),
        ("from=2024-02-03T08:00Z&to=2024-02-03T09:00Z", "1 Feb", 29),
    ],
)
def test_dates_lead_from_years_to_months_and_days(reader: Client, query: str, first: str, count: int | None) -> None:
    Run.objects.filter(pk=make_run().pk).update(created_at=datetime(2024, 2, 3, tzinfo=UTC))
    periods = list(reader.get(f"{ISSUES}?{query}").context["cl"].list_periods())
    assert periods[0][0] == first
    assert count is None or len(periods) == count
    # Other filters stay.
    assert ("code=x" in periods[0][1]) is ("code=x" in query)
    assert reader.get(f"{ISSUES}{periods[-1][1]}").status_code == 200


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize(
    "query",
    ["from=21.11.", "to=9999-12-31", "flow=a%00b", "flow=example&version=9", "severity=bad", "p=999", "p=0"],
)
def test_a_value_that_is_not_valid_leads_to_the_whole_list(reader: Client, url: str, query: str) -> None:
    add_attempt(make_run(), severities=("low",))
    page = reader.get(f"{url}?{query}", follow=True)
    assert page.redirect_chain[-1][0].endswith("?e=1")
    assert page.context["was_refused"] and len(page.context["cl"].result_list) == 1


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize("query", ["output__contains=x", "step__run__flow__id__exact=1", "started_by__password=x"])
def test_columns_are_not_compared_by_hand(reader: Client, url: str, query: str) -> None:
    assert reader.get(f"{url}?{query}").status_code == 400


# Pages and cost


def test_the_pager_marks_the_page_and_keeps_the_filters(reader: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.HistoryAdmin, "list_per_page", 2)
    monkeypatch.setattr(history, "MAX_LISTED", 6)
    run = make_run()
    keys = [add_attempt(run, number, ("low",)).pk for number in range(1, 9)][::-1]
    for number in (1, 2, 3):
        page = reader.get(ATTEMPTS, {"severity": "low", "p": number})
        text = page.content.decode()
        assert f'<span class="this-page">{number}</span>' in text
        assert (f'href="?p={number + 1}&amp;severity=low"' in text) is (number < 3)
        assert [row.pk for row in page.context["cl"].result_list] == keys[2 * number - 2 : 2 * number]
        assert page.context["cl"].is_cut is (number == 3)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_and_pages_take_as_many_queries_for_many_rows_as_for_one(reader: Client, kind: str) -> None:
    run = make_run()
    urls = [f"/admin/runs/{kind}/", list_pages(add_attempt(run, 1, ("low",), model="gpt-5-mini"))[kind]]
    before = [count_queries(reader, url) for url in urls]
    assert max(before) <= 8
    for number in range(2, 8):
        add_attempt(run, number, ("low", "high"), model="gpt-5-mini")
        add_attempt(make_run(run.version), 1, ("low", "high"))
    assert [count_queries(reader, url) for url in urls] == before
    assert len(reader.get(urls[0]).context["cl"].result_list) > 5


@pytest.mark.parametrize("url", LISTS)
def test_a_list_counts_nothing_and_reads_no_documents(reader: Client, url: str) -> None:
    for number in range(3):
        add_attempt(make_run(), 1, ("low", "high"), request={"number": number})
    with CaptureQueriesContext(connection) as queries:
        list_keys(reader, url)
    statements = [query["sql"] for query in queries]
    assert not any("COUNT(" in statement.upper() for statement in statements)
    table = f'FROM "{url.removeprefix("/admin/").strip("/").replace("/", "_")}"'
    assert all("LIMIT" in statement for statement in statements if table in statement)
    for document in ("raw_output", '"request"', "model_settings", '"spec"', '"context"'):
        assert not any(document in statement for statement in statements)


def test_an_attempt_shows_its_output_beside_its_own_issues_and_leads_to_their_lines(reader: Client) -> None:
    run = make_run()
    first = add_attempt(run, 1, ("critical",), output={"title": "Tea", "text": "first"})
    second = add_attempt(run, 2, ("low",), output={"text": "second"})
    page = get_page(reader, list_pages(first)["attempt"])
    assert "&quot;first&quot;" in page and "A critical thing." in page
    assert "second" not in page and "A low thing." not in page
    assert 'href="#s1a1-i0-at">/text</a>' in page
    assert 'id="s1a1-l3" data-marks="critical"' in page and 'id="s1a1-i0-at" href="#s1a1-i0"' in page
    assert "A low thing." in get_page(reader, list_pages(second)["attempt"])
