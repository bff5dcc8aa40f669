"""History in the admin: what its pages show, that nothing can be changed, and what lists and pages cost."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.admin import history_admin
from runs.models import Attempt, Issue, Run, Step
from tests.runs.builders import make_run, make_version
from tests.runs.history_rows import add_attempt, list_keys
from tests.runs.pages.reading import get_page
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

KINDS = ("run", "attempt", "issue")
LISTS = [f"/admin/runs/{kind}/" for kind in KINDS]


@pytest.fixture
def reader(client: Client) -> Client:
    """A browser in which somebody is signed in who may see everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def list_pages(attempt: Attempt) -> dict[str, str]:
    """The addresses of an attempt and of the rows around it, by kind. It must have an issue."""
    keys = (attempt.step.run_id, attempt.pk, attempt.issues.earliest("pk").pk)
    return {kind: f"/admin/runs/{kind}/{key}/change/" for kind, key in zip(KINDS, keys, strict=True)}


# Reading


def test_an_attempt_shows_its_output_beside_its_own_issues(reader: Client) -> None:
    run = make_run()
    first = add_attempt(run, 1, ("critical",), output={"text": "first"})
    second = add_attempt(run, 2, ("low",), output={"text": "second"})
    page = get_page(reader, f"/admin/runs/attempt/{first.pk}/change/")
    assert "&quot;first&quot;" in page
    assert "A critical thing." in page
    assert "second" not in page
    assert "A low thing." not in page
    assert f'href="/runs/{run.pk}/#s1a1"' in page
    assert "A low thing." in get_page(reader, f"/admin/runs/attempt/{second.pk}/change/")


def test_an_issue_leads_to_the_line_it_is_about_and_the_line_to_the_issue(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("high",), output={"title": "Tea", "text": "x"})
    page = get_page(reader, f"/admin/runs/attempt/{attempt.pk}/change/")
    assert 'href="#s1a1-l3">/text, line 3</a>' in page
    assert 'id="s1a1-l3" data-marks="high"><a class="line-link" href="#s1a1-i0"' in page
    assert 'id="s1a1-i0"' in page
    issue = get_page(reader, list_pages(attempt)["issue"])
    assert f'href="/admin/runs/attempt/{attempt.pk}/change/#s1a1-i0"' in issue


def test_attempts_lead_to_the_ones_before_and_after_them_in_the_run(reader: Client) -> None:
    run = make_run()
    attempts = [add_attempt(run, 1), add_attempt(run, 2), add_attempt(run, step=2)]
    add_attempt(make_run(run.version))
    pages = [get_page(reader, f"/admin/runs/attempt/{attempt.pk}/change/") for attempt in attempts]
    ways = [re.search(r'(?s)<nav class="neighbours".*?</nav>', page) for page in pages]
    addresses = [re.findall(r'href="([^"]+)"', way[0]) if way else None for way in ways]
    first, second, third = (f"/admin/runs/attempt/{attempt.pk}/change/" for attempt in attempts)
    assert addresses == [
        [f"/runs/{run.pk}/#s1a1", second],
        [first, f"/runs/{run.pk}/#s1a2", third],
        [second, f"/runs/{run.pk}/#s2a1"],
    ]


def test_a_run_shows_its_attempts_one_line_each(reader: Client) -> None:
    run = make_run()
    first, second = add_attempt(run, 1, ("critical",)), add_attempt(run, step=2)
    page = get_page(reader, f"/admin/runs/run/{run.pk}/change/")
    assert f'href="/runs/{run.pk}/"' in page
    links = [f'href="/admin/runs/attempt/{attempt.pk}/change/"' for attempt in (first, second)]
    assert all(link in page for link in links)


def test_an_attempt_that_is_under_way_has_a_page(reader: Client) -> None:
    run = make_run()
    step = Step.objects.create(run=run, index=1, name="Step 1")
    attempt = Attempt.objects.create(step=step, number=1)
    for url in (f"/admin/runs/attempt/{attempt.pk}/change/", f"/admin/runs/run/{run.pk}/change/", *LISTS):
        assert reader.get(url).status_code == 200


def test_what_a_model_wrote_is_shown_as_text(reader: Client) -> None:
    evil = "<script>alert(1)</script>"
    document = {evil: [evil]}
    run = make_run(input=document, end_sentence=evil)
    attempt = add_attempt(
        run,
        severities=("high",),
        input=document,
        output=document,
        raw_output=document,
        request=document,
        failure_reason=evil,
        model=evil,
        finish_reason=evil,
        response_id=evil,
        error={"message": evil},
        plugins={evil: evil},
    )
    documents = {"context": document, "suggestions": [evil], "added_fields": document}
    Issue.objects.update(code=evil, audit=evil, description=evil, path=f"/{evil}", **documents)
    Step.objects.update(name=evil)
    for url in (*LISTS, *list_pages(attempt).values()):
        page = reader.get(url).content.decode()
        assert evil not in page
        assert InlineFinder(page).found == []
        assert "&lt;script&gt;" in page or url == "/admin/runs/run/"


def test_an_output_without_measure_is_cut(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("low",), output={"text": ["x" * 100] * 50_000})
    page = reader.get(f"/admin/runs/attempt/{attempt.pk}/change/")
    assert len(page.content) < 2_000_000
    assert "Only the beginning is shown." in page.content.decode()


def test_the_style_sheets_of_the_pages_exist(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("low",))
    for url in (*LISTS, *list_pages(attempt).values()):
        sheets = re.findall(r'href="/static/([^"]+\.css)"', reader.get(url).content.decode())
        assert any("listing" in sheet for sheet in sheets)
        assert [sheet for sheet in sheets if finders.find(sheet) is None] == []


# Nothing changes


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_adds_changes_or_deletes_history(reader: Client, kind: str) -> None:
    attempt = add_attempt(make_run(), severities=("low",))
    page = list_pages(attempt)[kind].removesuffix("/change/")
    assert reader.get(f"/admin/runs/{kind}/add/").status_code == 403
    assert reader.post(f"{page}/change/", {"outcome": "passed", "status": "queued"}).status_code == 403
    assert reader.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": page.rpartition("/")[2], "post": "yes"}
    reader.post(f"/admin/runs/{kind}/", action)
    assert Issue.objects.count() == Run.objects.count() == 1
    shown = reader.get(f"{page}/change/").content.decode()
    assert 'name="_save"' not in shown
    assert "<textarea" not in shown


def test_history_needs_a_permission(client: Client) -> None:
    attempt = add_attempt(make_run())
    clerk = User.objects.create_user("carl", password="secret", is_staff=True)
    client.force_login(clerk)
    url = f"/admin/runs/attempt/{attempt.pk}/change/"
    assert client.get(url).status_code == 403
    clerk.user_permissions.add(Permission.objects.get(codename="view_attempt"))
    assert client.get(url).status_code == 200


# Cost

# For the session and the user, for the flows that can be chosen, for the keys of the list and for the rows of the page;
# then for what is suggested, for versions to choose, for attempts of steps, for issues.
QUERIES = {
    "/admin/runs/run/": 5,
    "/admin/runs/run/?severity=low&flow=example&version=1": 6,
    "/admin/runs/attempt/": 7,
    "/admin/runs/attempt/?severity=low&code=low_code&outcome=failed&flow=example&since=2020-01-01": 8,
    "/admin/runs/issue/": 6,
    "/admin/runs/issue/?severity=low&code=low_code&outcome=failed&flow=example&version=1&since=2020-01-01": 7,
}


def count_queries(client: Client, url: str) -> int:
    """What a page costs once Django knows the content types, which it keeps for as long as the process lives."""
    client.get(url)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    return len(queries)


@pytest.mark.parametrize(("url", "expected"), QUERIES.items())
def test_a_list_takes_as_many_queries_for_many_rows_as_for_one(reader: Client, url: str, expected: int) -> None:
    version = make_version()
    add_attempt(make_run(version), 1, ("low",), model="gpt-5-mini")
    assert count_queries(reader, url) == expected
    for _ in range(5):
        run = make_run(version)
        for number in (1, 2):
            add_attempt(run, number, ("low", "high"), model="gpt-5-mini")
    assert count_queries(reader, url) == expected
    assert len(reader.get(url).context["cl"].result_list) > 5


@pytest.mark.parametrize(("kind", "expected"), [("run", 6), ("attempt", 6), ("issue", 3)])
def test_a_page_takes_as_many_queries_for_many_rows_as_for_one(reader: Client, kind: str, expected: int) -> None:
    run = make_run()
    attempt = add_attempt(run, 1, ("low",))
    url = list_pages(attempt)[kind]
    assert count_queries(reader, url) == expected
    for number in range(2, 12):
        add_attempt(run, number, ("low", "high"))
    assert count_queries(reader, url) == expected


@pytest.mark.parametrize("url", LISTS)
def test_a_list_counts_nothing_and_leaves_documents_alone(reader: Client, url: str) -> None:
    for number in range(3):
        add_attempt(make_run(), 1, ("low", "high"), request={"number": number})
    with CaptureQueriesContext(connection) as queries:
        list_keys(reader, url)
    statements = [query["sql"] for query in queries]
    table = f'"{url.rpartition("/admin/")[2].strip("/").replace("/", "_")}"'
    assert not any("COUNT(" in statement.upper() for statement in statements)
    assert all("LIMIT" in statement or " IN (" in statement for statement in statements if f"FROM {table}" in statement)
    for document in ("raw_output", '"request"', "model_settings", '"spec"'):
        assert not any(document in statement for statement in statements)


def test_a_list_that_is_longer_than_its_pages_lead_says_so(reader: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_admin, "MOST_LISTED", 3)
    run = make_run()
    for number in range(1, 6):
        add_attempt(run, number)
    page = reader.get("/admin/runs/attempt/")
    assert page.context["cl"].result_count == 3
    assert "The newest 3 attempts; filters find older ones." in page.content.decode()
