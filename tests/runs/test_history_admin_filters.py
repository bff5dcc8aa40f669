"""What the lists of history in the admin can be narrowed by, and what nonsense in their addresses gets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from flows.engine.history import Severity
from flows.models import FlowVersion
from runs.admin.filters import RECENT
from runs.models import Attempt, Issue, Run
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version
from tests.runs.history_rows import add_attempt, list_keys, list_problems

pytestmark = pytest.mark.django_db

RUNS, ATTEMPTS, ISSUES = LISTS = [f"/admin/runs/{kind}/" for kind in ("run", "attempt", "issue")]


@pytest.fixture
def reader(client: Client) -> Client:
    """A browser in which somebody is signed in who may see everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def make_other_version() -> FlowVersion:
    """A version of another flow."""
    return make_version(make_flow().model_copy(update={"name": "other", "title": "Other"}))


@pytest.mark.parametrize(
    ("at_least", "expected"),
    [("critical", {"critical"}), ("high", {"critical", "high"}), ("medium", {"critical", "high", "medium"})],
)
def test_issues_are_narrowed_to_at_least_a_severity(reader: Client, at_least: str, expected: set[str]) -> None:
    add_attempt(make_run(), severities=tuple(Severity))
    shown = list_keys(reader, ISSUES, severity=at_least)
    assert {issue.severity for issue in Issue.objects.filter(pk__in=shown)} == expected


def test_attempts_are_narrowed_by_the_severity_of_their_own_issues(reader: Client) -> None:
    run = make_run()
    grave = add_attempt(run, 1, ("low", "critical"))
    mild = add_attempt(run, 2, ("medium",))
    clean = add_attempt(run, 3)
    assert list_keys(reader, ATTEMPTS, severity="critical") == [grave.pk]
    assert list_keys(reader, ATTEMPTS, severity="high") == [grave.pk]
    assert list_keys(reader, ATTEMPTS, severity="medium") == [mild.pk, grave.pk]
    assert list_keys(reader, ATTEMPTS, severity="low") == [mild.pk, grave.pk]
    assert list_keys(reader, ATTEMPTS) == [clean.pk, mild.pk, grave.pk]


def test_runs_are_narrowed_by_the_severity_of_an_issue(reader: Client) -> None:
    runs = {severity: make_run() for severity in ("medium", "critical")}
    for severity, run in runs.items():
        add_attempt(run, severities=(severity,))
    make_run()
    assert list_keys(reader, RUNS, severity="high") == [runs["critical"].pk]
    assert list_keys(reader, RUNS, severity="low") == [runs["critical"].pk, runs["medium"].pk]


def test_what_is_asked_of_issues_must_be_true_of_one_and_the_same(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("low", "high"))
    assert list_keys(reader, ATTEMPTS, code="high_code", severity="high") == [attempt.pk]
    assert list_keys(reader, ATTEMPTS, code="low_code", severity="high") == []
    assert list_keys(reader, ATTEMPTS, code="low_code", audit="Audit of high") == []


def test_issues_are_found_by_code_audit_and_the_outcome_of_their_attempt(reader: Client) -> None:
    run = make_run()
    add_attempt(run, 1, severities=("low", "high"))
    add_attempt(run, 2, severities=("low",), outcome="passed")
    low, high, passed = Issue.objects.order_by("pk")
    assert list_keys(reader, ISSUES, code="high_code") == [high.pk]
    assert list_keys(reader, ISSUES, audit="Audit of low") == [passed.pk, low.pk]
    assert list_keys(reader, ISSUES, audit="Audit of low", outcome="passed") == [passed.pk]
    assert list_keys(reader, ISSUES, code="high") == []


def test_history_is_narrowed_to_a_flow_and_a_version_of_it(reader: Client) -> None:
    version, newer = make_version(), make_version()
    old, new, other = make_run(version), make_run(newer), make_run(make_other_version())
    attempts = {run.pk: add_attempt(run, severities=("low",)) for run in (old, new, other)}
    issues = {key: attempt.issues.get().pk for key, attempt in attempts.items()}
    expected: dict[str, Any] = {
        RUNS: lambda run: run.pk,
        ATTEMPTS: lambda run: attempts[run.pk].pk,
        ISSUES: lambda run: issues[run.pk],
    }
    for url, key in expected.items():
        assert list_keys(reader, url, flow=version.flow.name) == [key(new), key(old)]
        assert list_keys(reader, url, flow=version.flow.name, version=version.number) == [key(old)]
        assert list_keys(reader, url, flow="other") == [key(other)]
        assert list_keys(reader, url) == [key(other), key(new), key(old)]


def test_runs_are_narrowed_by_status_and_end_reason(reader: Client) -> None:
    end = datetime(2026, 11, 21, tzinfo=UTC)
    failed = make_run(status="failed", end_reason="step_failed", ended_at=end)
    errored = make_run(status="errored", end_reason="provider_error", ended_at=end)
    assert list_keys(reader, RUNS, status="failed") == [failed.pk]
    assert list_keys(reader, RUNS, reason="provider_error") == [errored.pk]
    assert list_keys(reader, RUNS, status="failed", reason="provider_error") == []


def test_attempts_are_narrowed_by_outcome(reader: Client) -> None:
    run = make_run()
    failed, under_way = add_attempt(run, 1, ("high",)), add_attempt(run, 2, outcome="")
    assert list_keys(reader, ATTEMPTS, outcome="failed") == [failed.pk]
    assert list_keys(reader, ATTEMPTS, outcome="running") == [under_way.pk]


def test_dates_are_whole_days_of_the_site(reader: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    moments = [datetime(2026, 11, day, hour, 30, tzinfo=UTC) for day, hour in ((19, 22), (19, 23), (20, 22), (20, 23))]
    run = make_run()
    early, first, last, late = (add_attempt(run, n, ("low",), started_at=at) for n, at in enumerate(moments, start=1))
    day = {"since": "2026-11-20", "until": "2026-11-20"}
    assert list_keys(reader, ATTEMPTS, **day) == [last.pk, first.pk]
    assert list_keys(reader, ISSUES, **day) == [last.issues.get().pk, first.issues.get().pk]
    assert list_keys(reader, ATTEMPTS, until="2026-11-19") == [early.pk]
    assert list_keys(reader, ATTEMPTS, since="2026-11-21") == [late.pk]
    Run.objects.update(created_at=moments[1])
    assert list_keys(reader, RUNS, **day) == [run.pk]
    assert list_keys(reader, RUNS, until="2026-11-19") == []


def test_versions_can_be_chosen_once_a_flow_is(reader: Client) -> None:
    version = make_version()
    make_version()
    assert "Choose a flow" in reader.get(ATTEMPTS).content.decode()
    page = reader.get(ATTEMPTS, {"flow": version.flow.name}).content.decode()
    assert '<option value="2">Version 2</option>' in page


def test_codes_and_audits_of_late_are_suggested(reader: Client) -> None:
    attempt = add_attempt(make_run(), severities=("low",))
    page = reader.get(ISSUES).content.decode()
    assert '<option value="low_code"></option>' in page
    assert '<option value="Audit of low"></option>' in page
    newer = [
        Issue(attempt=attempt, position=n, code="new", audit="New", severity="low", description="x")
        for n in range(1, RECENT + 1)
    ]
    Issue.objects.bulk_create(newer)
    page = reader.get(ISSUES).content.decode()
    assert '<option value="new"></option>' in page
    assert '<option value="low_code"></option>' not in page


def test_a_code_leads_to_all_issues_of_the_same_code(reader: Client) -> None:
    add_attempt(make_run(), severities=("low", "high"))
    page = reader.get(ISSUES).content.decode()
    assert 'href="/admin/runs/issue/?code=high_code"' in page
    assert 'href="/admin/runs/issue/?audit=Audit+of+low"' in page


# Nonsense


@pytest.mark.parametrize(
    ("filters", "field", "sentence"),
    [
        ({"severity": "fatal"}, "severity", "There is no severity “fatal”, so this narrows nothing."),
        ({"outcome": "' OR 1=1"}, "outcome", "There is no outcome “' OR 1=1”, so this narrows nothing."),
        ({"flow": "gone\x00"}, "flow", "There is no flow “gone\x00”, so this narrows nothing."),
        ({"version": "1"}, "version", "Versions are numbered within their flow: choose a flow first."),
        ({"flow": "example", "version": "9"}, "version", "There is no version “9”, so this narrows nothing."),
        ({"since": "21.11."}, "since", "Write a date between 2000-01-01 and 2999-12-31, such as 2026-11-21."),
        ({"until": "9999-12-31"}, "until", "Write a date between 2000-01-01 and 2999-12-31, such as 2026-11-21."),
        ({"code": "a\x00b"}, "code", "Null characters are not allowed."),
        ({"audit": "x" * 201}, "audit", "Ensure this value has at most 200 characters (it has 201)."),
    ],
)
def test_a_filter_that_makes_no_sense_gets_a_sentence_and_narrows_nothing(
    reader: Client, filters: dict[str, str], field: str, sentence: str
) -> None:
    attempt = add_attempt(make_run(), severities=("low",))
    assert list_problems(reader, ATTEMPTS, **filters) == {field: [sentence]}
    assert list_keys(reader, ATTEMPTS, **filters) == [attempt.pk]
    assert list_keys(reader, ISSUES, **filters) == [attempt.issues.get().pk]


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize(
    "query",
    ["nonsense=1", "p=999", "p=0", "output__contains=x", "step__run__flow__id__exact=1", "started_by__password=x"],
)
def test_an_address_that_asks_for_what_there_is_not_leads_to_the_whole_list(
    reader: Client, url: str, query: str
) -> None:
    add_attempt(make_run(), severities=("low",))
    page = reader.get(f"{url}?{query}", follow=True)
    assert page.status_code == 200
    assert len(page.context["cl"].result_list) == 1
    assert "The address asked for something that this list doesn’t have." in page.content.decode()


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize("query", ["p=abc", "o=1.-2", "o=x", "all=", "q=x", "_facets=True", "_popup=1"])
def test_what_other_lists_of_the_admin_know_does_no_harm(reader: Client, url: str, query: str) -> None:
    add_attempt(make_run(), severities=("low",))
    page = reader.get(f"{url}?{query}", follow=True)
    assert page.status_code == 200
    assert len(page.context["cl"].result_list) == 1


def test_empty_fields_leave_the_address(reader: Client) -> None:
    answer = reader.get(ATTEMPTS, {"severity": "low", "code": "", "flow": ""})
    assert answer["Location"] == f"{ATTEMPTS}?severity=low"
    assert reader.get(ATTEMPTS, {"code": ""})["Location"] == ATTEMPTS


def test_a_list_that_filters_emptied_says_so_and_leads_back(reader: Client) -> None:
    add_attempt(make_run(), severities=("low",))
    page = reader.get(ISSUES, {"code": "low"}).content.decode()
    assert "None of the issues match these filters. Names and codes are compared as a whole" in page
    assert 'href="?">Clear the filters</a>' in page
    assert Attempt.objects.count() == 1


def test_pages_keep_the_filters(reader: Client) -> None:
    run = make_run()
    for number in range(1, 53):
        add_attempt(run, number, ("low",))
    page = reader.get(ATTEMPTS, {"severity": "low"})
    assert 'href="?p=2&amp;severity=low"' in page.content.decode()
    assert (
        list_keys(reader, ATTEMPTS, severity="low", p=2)
        == list(Attempt.objects.order_by("pk").values_list("pk", flat=True)[:2])[::-1]
    )
