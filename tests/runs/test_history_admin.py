"""History in the admin: read-only, filtered by severity, and as cheap with many rows as with few."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.engine.issues import Severity
from runs.admin.history_admin import BoundedPaginator
from runs.models import Attempt, Issue, Run, Step, TokenUsage
from tests.runs.builders import make_run, make_version
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

LISTS = ["/admin/runs/run/", "/admin/runs/attempt/", "/admin/runs/issue/"]


@pytest.fixture
def reader(client: Client) -> Client:
    """A browser in which somebody is signed in who may see everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def add_attempt(run: Run, number: int = 1, severities: tuple[str, ...] = (), **fields: Any) -> Attempt:
    """An attempt of step 1 that ended, with an issue of each severity, counted on the run as the recorder does."""
    step, _ = Step.objects.get_or_create(run=run, index=1, defaults={"name": "Step 1"})
    now = timezone.now()
    defaults = {"outcome": "failed" if severities else "passed", "output": {"text": "x"}, "started_at": now}
    attempt = Attempt.objects.create(step=step, number=number, ended_at=now, **{**defaults, **fields})
    TokenUsage.objects.create(attempt=attempt, prompt=1_000, completion=200, total=1_200)
    for position, severity in enumerate(severities):
        Issue.objects.create(
            attempt=attempt,
            position=position,
            code=f"{severity}_code",
            audit=f"Audit of {severity}",
            severity=severity,
            description=f"A {severity} thing.",
            path="/text",
        )
        Run.objects.filter(pk=run.pk).update(**{f"issues_{severity}": 1})
    return attempt


def listed(client: Client, url: str) -> list[Any]:
    """The keys of the rows of a list, in its order."""
    page = client.get(url)
    assert page.status_code == 200, page
    return [row.pk for row in page.context["cl"].result_list]


# Filters


@pytest.mark.parametrize(
    ("at_least", "expected"),
    [("critical", {"critical"}), ("high", {"critical", "high"}), ("medium", {"critical", "high", "medium"})],
)
def test_issues_are_filtered_by_at_least_a_severity(reader: Client, at_least: str, expected: set[str]) -> None:
    add_attempt(make_run(), severities=tuple(Severity))
    shown = listed(reader, f"/admin/runs/issue/?severity={at_least}")
    assert {issue.severity for issue in Issue.objects.filter(pk__in=shown)} == expected


def test_attempts_are_filtered_by_the_severity_of_their_own_issues(reader: Client) -> None:
    run = make_run()
    grave = add_attempt(run, 1, ("low", "critical"))
    mild = add_attempt(run, 2, ("medium",))
    add_attempt(run, 3)
    url = "/admin/runs/attempt/?severity="
    assert listed(reader, f"{url}critical") == [grave.pk]
    assert listed(reader, f"{url}high") == [grave.pk]
    assert listed(reader, f"{url}medium") == [mild.pk, grave.pk]
    assert listed(reader, f"{url}low") == [mild.pk, grave.pk]
    assert len(listed(reader, "/admin/runs/attempt/")) == 3


def test_runs_are_filtered_by_the_severity_of_an_issue(reader: Client) -> None:
    runs = {severity: make_run() for severity in ("medium", "critical")}
    for severity, run in runs.items():
        add_attempt(run, severities=(severity,))
    make_run()
    assert listed(reader, "/admin/runs/run/?severity=high") == [runs["critical"].pk]
    assert listed(reader, "/admin/runs/run/?severity=low") == [runs["critical"].pk, runs["medium"].pk]


def test_history_is_filtered_by_outcome_status_and_flow(reader: Client) -> None:
    from tests.engine.builders import make_flow

    run = make_run()
    failed, passed = add_attempt(run, 1, ("high",)), add_attempt(run, 2)
    other = make_run(make_version(make_flow().model_copy(update={"name": "other"})))
    Run.objects.filter(pk=other.pk).update(status="cancelled", ended_at=timezone.now())
    assert listed(reader, "/admin/runs/attempt/?outcome__exact=failed") == [failed.pk]
    assert listed(reader, f"/admin/runs/attempt/?step__run__flow__id__exact={run.flow_id}") == [passed.pk, failed.pk]
    assert listed(reader, f"/admin/runs/attempt/?step__run__flow__id__exact={other.flow_id}") == []
    assert listed(reader, "/admin/runs/run/?status__exact=cancelled") == [other.pk]
    assert listed(reader, f"/admin/runs/run/?flow__id__exact={run.flow_id}") == [run.pk]


def test_issues_are_found_by_code_and_audit(reader: Client) -> None:
    add_attempt(make_run(), severities=("low", "high"))
    low, high = Issue.objects.all()
    assert listed(reader, "/admin/runs/issue/?q=high_c") == [high.pk]
    assert listed(reader, '/admin/runs/issue/?q="Audit of low"') == [low.pk]


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize("query", ["severity=fatal", "nonsense=1", "p=abc", "p=999", "o=1.-2", "flow__id__exact=x"])
def test_an_address_with_nonsense_gets_a_list(reader: Client, url: str, query: str) -> None:
    add_attempt(make_run(), severities=("low",))
    page = reader.get(f"{url}?{query}", follow=True)
    assert page.status_code == 200


# Reading


def test_an_attempt_shows_its_output_beside_its_own_issues(reader: Client) -> None:
    run = make_run()
    first = add_attempt(run, 1, ("critical",), output={"text": "first"})
    second = add_attempt(run, 2, ("low",), output={"text": "second"})
    content = reader.get(f"/admin/runs/attempt/{first.pk}/change/").content.decode()
    assert "&quot;first&quot;" in content
    assert "A critical thing." in content
    assert "second" not in content
    assert "A low thing." not in content
    assert f'href="/runs/{run.pk}/#s1a1"' in content
    assert "A low thing." in reader.get(f"/admin/runs/attempt/{second.pk}/change/").content.decode()


def test_a_run_shows_its_attempts_and_leads_to_its_page(reader: Client) -> None:
    run = make_run()
    attempt = add_attempt(run, 1, ("critical",))
    content = reader.get(f"/admin/runs/run/{run.pk}/change/").content.decode()
    assert f'href="/runs/{run.pk}/"' in content
    assert f'href="/admin/runs/attempt/{attempt.pk}/change/"' in content


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
        error={"message": evil},
        plugins={evil: evil},
    )
    documents = {"context": document, "suggestions": [evil], "added_fields": document}
    Issue.objects.update(code=evil, audit=evil, description=evil, path=f"/{evil}", **documents)
    rows = {"run": run.pk, "attempt": attempt.pk, "issue": Issue.objects.get().pk}
    pages = [f"/admin/runs/{kind}/{key}/change/" for kind, key in rows.items()]
    for url in (*LISTS, *pages):
        content = reader.get(url).content.decode()
        assert evil not in content
        assert InlineFinder(content).found == []
    assert "&lt;script&gt;" in content


def test_an_output_without_measure_is_cut(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("low",), output={"text": ["x" * 100] * 50_000})
    page = reader.get(f"/admin/runs/attempt/{attempt.pk}/change/")
    assert len(page.content) < 2_000_000
    assert "Only the beginning is shown." in page.content.decode()


def test_the_style_sheets_of_the_pages_exist(reader: Client) -> None:
    import re

    run = make_run()
    attempt = add_attempt(run)
    for url in (f"/admin/runs/run/{run.pk}/change/", f"/admin/runs/attempt/{attempt.pk}/change/"):
        content = reader.get(url).content.decode()
        sheets = re.findall(r'href="/static/([^"]+\.css)"', content)
        assert any("listing" in sheet for sheet in sheets)
        assert [sheet for sheet in sheets if finders.find(sheet) is None] == []


# Nothing changes


@pytest.mark.parametrize("kind", ["run", "attempt", "issue"])
def test_nobody_adds_changes_or_deletes_history(reader: Client, kind: str) -> None:
    attempt = add_attempt(make_run(), severities=("low",))
    key = {"run": attempt.step.run_id, "attempt": attempt.pk, "issue": attempt.issues.get().pk}[kind]
    page = f"/admin/runs/{kind}/{key}"
    assert reader.get(f"/admin/runs/{kind}/add/").status_code == 403
    assert reader.post(f"{page}/change/", {"outcome": "passed", "status": "queued"}).status_code == 403
    assert reader.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": key, "post": "yes"}
    reader.post(f"/admin/runs/{kind}/", action)
    assert Issue.objects.count() == 1
    assert Run.objects.count() == 1
    content = reader.get(f"{page}/change/").content.decode()
    assert 'name="_save"' not in content
    assert "<textarea" not in content


def test_history_needs_a_permission(client: Client) -> None:
    attempt = add_attempt(make_run())
    clerk = User.objects.create_user("carl", password="secret", is_staff=True)
    client.force_login(clerk)
    url = f"/admin/runs/attempt/{attempt.pk}/change/"
    assert client.get(url).status_code == 403
    clerk.user_permissions.add(Permission.objects.get(codename="view_attempt"))
    assert client.get(url).status_code == 200


# Cost


@pytest.mark.parametrize(
    ("url", "most"),
    [("/admin/runs/run/", 5), ("/admin/runs/attempt/", 6), ("/admin/runs/issue/?severity=low", 5)],
)
def test_a_list_takes_as_many_queries_for_many_rows_as_for_one(reader: Client, url: str, most: int) -> None:
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            listed(reader, url)
        counts.append(len(queries))
        version = make_version()
        for _ in range(5):
            run = make_run(version)
            for number in (1, 2):
                add_attempt(run, number, ("low", "high"))
    with CaptureQueriesContext(connection) as queries:
        listed(reader, url)
    assert len(queries) <= counts[1] == len(queries)
    assert len(queries) <= most


def test_a_run_takes_as_many_queries_for_many_attempts_as_for_one(reader: Client) -> None:
    run = make_run()
    url = f"/admin/runs/run/{run.pk}/change/"
    add_attempt(run, 1, ("low",))
    # Django keeps content types once it has read them; that query belongs to the process and not to the page.
    reader.get(url)
    with CaptureQueriesContext(connection) as few:
        reader.get(url)
    for number in range(2, 12):
        add_attempt(run, number, ("low", "high"))
    with CaptureQueriesContext(connection) as many:
        reader.get(url)
    assert len(many) == len(few) <= 6


@pytest.mark.parametrize("url", LISTS)
def test_a_list_never_counts_the_whole_table_and_leaves_documents_alone(reader: Client, url: str) -> None:
    for number in range(3):
        add_attempt(make_run(), 1, ("low", "high"), request={"number": number})
    with CaptureQueriesContext(connection) as queries:
        listed(reader, url)
    statements = [query["sql"] for query in queries]
    counting = [statement for statement in statements if "COUNT(" in statement.upper()]
    assert len(counting) == 1
    assert "LIMIT 10000" in counting[0]
    for document in ("raw_output", '"request"', "model_settings", '"spec"'):
        assert not any(document in statement for statement in statements)


def test_a_list_that_is_longer_than_its_pages_lead_says_so(reader: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedPaginator, "most", 3)
    run = make_run()
    for number in range(1, 6):
        add_attempt(run, number)
    page = reader.get("/admin/runs/attempt/")
    assert page.context["cl"].result_count == 3
    assert "The newest 3 attempts; filters find older ones." in page.content.decode()
