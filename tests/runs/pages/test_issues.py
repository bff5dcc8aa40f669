"""The page of issues across runs: groups, filters, search, and the issues of a group."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.utils import timezone

from flows.engine.history import Attempt, Issue
from flows.engine.spec import AuditSpec
from flows.models import FlowVersion
from runs import issue_groups, models
from runs.facets import add_facets, list_facets
from runs.history.issues import address_issue
from runs.models import DailyIssues, PurgedDay, Run, RunStatus
from runs.pages.issues import MAX_CARDS, PAGE_SIZE
from runs.search import index_runs
from runs.statistics.counting import count_runs
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_words

pytestmark = pytest.mark.django_db


def make_hex_issue(value: str = "red", severity: str = "critical", **fields: Any) -> Issue:
    values = {"code": "hex_colours", "audit": "Hex colours", "path": "/colour", **fields}
    return make_issue(severity, f"“{value}” is no hex colour.", **values)


def make_failed(*issues: Issue, step: int = 1, **output: Any) -> Attempt:
    return make_attempt(step, 1, "failed", output=output or {"colour": "red"}, issues=issues or (make_hex_issue(),))


def make_counted(*attempts: Attempt, days: int = 0, version: FlowVersion | None = None, **fields: Any) -> Run:
    """A run that ended some days ago, as the rollup leaves it."""
    ended_at = timezone.now() - timedelta(days=days)
    if version is not None:
        fields |= {"version": version, "flow": version.flow}
    run = make_stored_run(*attempts, ended_at=ended_at, created_at=ended_at - timedelta(minutes=1), **fields)
    add_facets((run.pk, facet) for attempt in attempts for facet in list_facets(attempt))
    count_runs([run.pk])
    index_runs([run.pk])
    return run


def read_groups(page: str) -> list[str]:
    """The words of each group, without those of its link."""
    return [
        read_words("<" + part).split(" Show the issues")[0] for part in page.split('<details class="issue-group"')[1:]
    ]


def list_titles(page: str) -> list[str]:
    """The audits, as far as they are shown, in their order."""
    return [read_words(title) for title in re.findall(r'<h2 id="audit-\d+">.*?<bdi[^>]*>(.*?)</bdi>', page, re.DOTALL)]


def find_rows_url(page: str) -> str:
    found = re.search(r'hx-get="(/issues/[^"]+)"', page)
    assert found is not None
    return unescape(found[1])


class TestGroups:
    def test_a_group_sums_up_its_issues(self, viewer: Client) -> None:
        first = make_counted(
            make_failed(make_hex_issue(), make_hex_issue("blue", path="/other"), other="blue", colour="red"), days=3
        )
        last = make_counted(make_failed())
        page = get_page(viewer, "/issues/")
        (group,) = read_groups(page)
        assert "Critical: Latest message: “red” is no hex colour." in group
        assert "Values: red × 2 blue × 1" in group
        assert "3 issues in 2 runs" in group
        assert f"Last seen in run #{last.pk} , first in run #{first.pk}" in group
        assert re.findall(r'href="/runs/(\d+)/"', page) == [str(last.pk), str(first.pk)]
        assert "3 issues in 1 group, last 14 days" in read_words(page)
        assert list_titles(page) == ["Hex colours"]

    def test_steps_severities_and_codes_make_groups(self, viewer: Client) -> None:
        own = make_issue("critical", "It is not allowed.", code="schema_mismatch")
        run = make_counted(
            make_failed(make_hex_issue(), make_hex_issue(severity="low"), make_hex_issue(code="short_form")),
            make_failed(make_hex_issue(), own, own, step=2),
        )
        page = get_page(viewer, "/issues/")
        assert list_titles(page).count("Hex colours") == 2 and "Schema mismatch" in list_titles(page)
        assert len(read_groups(page)) == 5
        assert sum(row.runs for row in DailyIssues.objects.filter(code="hex_colours", severity="critical")) == 1
        # A run that is gone is no link.
        Run.objects.filter(pk=run.pk).delete()
        page = get_page(viewer, "/issues/")
        assert len(read_groups(page)) == 5 and f"/runs/{run.pk}/" not in page and "No example is stored" in page

    def test_the_version_says_template_step_and_role(self, viewer: Client) -> None:
        audits = (
            AuditSpec(name="Hex colours", rule="false", message_template="{output.colour} is {{no}} hex colour"),
            AuditSpec(name="Warm", rule="false", fail_at="never"),
            AuditSpec(name="Bright", rule="false", severity="low", fail_at="high"),
        )
        version = make_version(make_page_flow(make_step(1, name="Choose colours", audits=audits)))
        warm = make_issue("low", "Cold.", code="warm", audit="Warm")
        bright = make_issue("low", "Dark.", code="bright", audit="Bright")
        broken = make_hex_issue(code="audit_error", severity="high")
        make_counted(make_failed(make_hex_issue(), warm, bright, broken), version=version)
        page = get_page(viewer, "/issues/")
        assert "<code>output.colour</code> is {no} hex colour" in page
        assert re.findall(r'data-role="(\w+)"', page) == ["blocks", "warns", "warns"]
        assert "Step 1, Choose colours" in read_words(page)
        # What the audit's template did not write is shown as it is.
        assert sum("Latest message" in group for group in read_groups(page)) == 3

    def test_what_newest_versions_brought_and_took_away_is_marked(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("runs.pages.issues.MIN_RUNS_WITHOUT", 1)
        old, new = make_version(make_page_flow()), make_version(make_page_flow())
        make_counted(make_failed(make_hex_issue(audit="Old", code="old")), days=5, version=old)
        make_counted(make_failed(make_hex_issue(audit="New", code="new")), days=1, version=new)
        page = get_page(viewer, "/issues/")
        groups = dict(zip(list_titles(page), read_groups(page), strict=True))
        assert "New in v2" in groups["New"] and "Gone since v2" in groups["Old"]
        assert "v1 v2 without" in groups["Old"] and "v1 without v2" in groups["New"]
        # Of one version nothing is known of others.
        (group,) = read_groups(get_page(viewer, f"/issues/?flow={old.flow.name}&version=1"))
        assert "Gone since" not in group and "without" not in group
        # An earlier version is used again.
        make_counted(make_failed(make_hex_issue(audit="Old", code="old")), days=0, version=old)
        assert "Gone since" not in get_page(viewer, "/issues/")

    def test_orders(self, viewer: Client) -> None:
        make_counted(make_failed(make_hex_issue(audit="Severe")), days=2)
        make_counted(make_failed(*[make_hex_issue(audit="Many", severity="low")] * 3), days=1)
        make_counted(make_failed(make_hex_issue(audit="Recent", severity="medium")))
        assert list_titles(get_page(viewer, "/issues/")) == ["Severe", "Recent", "Many"]
        assert list_titles(get_page(viewer, "/issues/?order=newest")) == ["Recent", "Many", "Severe"]
        assert list_titles(get_page(viewer, "/issues/?order=most&severity=low")) == ["Many", "Severe", "Recent"]
        assert "is not an order" in read_words(get_page(viewer, "/issues/?order=best"))

    def test_further_audits_are_on_further_pages(self, viewer: Client) -> None:
        make_counted(make_failed(*(make_hex_issue(audit=f"Audit {number}") for number in range(MAX_CARDS + 1))))
        page = get_page(viewer, "/issues/?severity=low")
        assert len(list_titles(page)) == MAX_CARDS and "1 more audit" in read_words(page)
        page = get_page(viewer, "/issues/?severity=low&page=2")
        assert len(list_titles(page)) == 1 and 'href="/issues/?severity=low"' in page

    def test_texts_of_models_are_inert_and_isolated(self, viewer: Client) -> None:
        arabic, script = "البائع مسؤول بالكامل", "<script>alert(1)</script>\u202e"
        make_counted(make_failed(make_hex_issue(arabic), make_hex_issue(path="/b"), colour=arabic, b=script))
        page = get_page(viewer, "/issues/")
        assert f'<bdi dir="rtl">{arabic}</bdi>' in page
        assert "<script>alert" not in page and "&lt;script&gt;" in page and "\u202e" not in page

    def test_queries_do_not_grow_with_groups(self, viewer: Client) -> None:
        make_counted(make_failed())
        few = count_queries(viewer, "/issues/")
        issues = [make_hex_issue(audit=f"Audit {number}", code=f"code_{number}") for number in range(8)]
        for days in range(4):
            make_counted(make_failed(*issues), days=days)
        assert count_queries(viewer, "/issues/") == few <= 13


class TestFilters:
    def test_all_filters_hold_for_one_and_the_same_issue(self, viewer: Client) -> None:
        old, new = make_version(make_page_flow()), make_version(make_page_flow())
        other = make_version(make_page_flow(name="other", title="Other"))
        make_counted(make_failed(make_hex_issue(audit="A", code="a")), version=old, days=20)
        make_counted(
            make_failed(make_hex_issue(audit="B", code="b", severity="low")),
            make_failed(make_hex_issue(audit="C", code="c", severity="high"), step=2),
            version=new,
        )
        make_counted(make_failed(make_hex_issue(audit="D", code="d", severity="medium")), version=other)
        for query, expected in {
            "": "BCD",
            "period=30d": "ABCD",
            "period=30d&flow=colour-theme&version=1": "A",
            "flow=colour-theme": "BC",
            "severity=medium": "CD",
            "audit=B": "B",
            "code=c": "C",
            "step=2": "C",
            "step=1&severity=high": "",
            "audit=B&code=c": "",
            "audit=B&severity=high": "",
            "q=hex&severity=high": "C",
            "q=hex&step=1": "BD",
        }.items():
            assert "".join(sorted(list_titles(get_page(viewer, f"/issues/?{query}")))) == expected, query

    def test_empty_pages_say_what_to_do(self, viewer: Client) -> None:
        assert "No issues in 14 days" in read_words(get_page(viewer, "/issues/"))
        make_counted(make_failed(), days=20)
        page = get_page(viewer, "/issues/?audit=hex+color")
        assert "No issues match these filters" in read_words(page)
        assert 'href="/issues/?audit=hex+color&amp;period=90d"' in page
        page = get_page(viewer, "/issues/?audit=hex+color&period=90d")
        assert 'Did you mean <a href="/issues/?audit=Hex+colours&amp;period=90d">' in page


class TestSearch:
    def test_words_are_those_of_one_message(self, viewer: Client) -> None:
        make_counted(
            make_failed(make_hex_issue("tomato"), make_hex_issue("orange", audit="Other")), input={"topic": "plum"}
        )
        page = get_page(viewer, "/issues/?q=tomato")
        assert list_titles(page) == ["Hex colours"] and "1 issue in 1 group" in read_words(page)
        assert list_titles(get_page(viewer, '/issues/?q="hex+colour"+-orange')) == ["Hex colours"]
        # In the run, but in no message.
        for words in ("plum", "tomato orange"):
            assert list_titles(get_page(viewer, f"/issues/?q={words}")) == []

    def test_a_word_that_is_not_there_brings_the_closest_one(self, viewer: Client) -> None:
        make_counted(make_failed(make_hex_issue("tomato")))
        assert 'Did you mean <a href="/issues/?q=tomato+colour">' in get_page(viewer, "/issues/?q=tomatoe+colour")
        assert "Did you mean" not in get_page(viewer, "/issues/?q=zebra")

    def test_many_runs_are_searched_part_by_part(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(issue_groups, "SEARCHED_RUNS", 2)
        runs = [make_counted(make_failed(), days=3 - number) for number in range(3)]
        page = get_page(viewer, "/issues/?q=hex")
        assert f"Searched back to run #{runs[1].pk}. Counts are of 2 runs." in read_words(page)
        page = get_page(viewer, f"/issues/?q=hex&before={runs[1].pk}")
        assert "1 issue in 1 group" in read_words(page) and "Keep searching" not in page


class TestIssuesOfAGroup:
    def test_each_issue_leads_to_its_output(self, viewer: Client) -> None:
        run = make_counted(make_failed(make_hex_issue(severity="low"), make_hex_issue()))
        rows = find_rows_url(get_page(viewer, "/issues/"))
        part = get_page(viewer, rows, headers=HTMX)
        assert re.findall(r'href="(/runs/[^"]+)"', part) == [f"/runs/{run.pk}/{address_issue(1, 1, 1)}"]
        assert "Step 1, attempt 1 red “red” is no hex colour." in read_words(part)
        assert "<h1>" not in part and "<h1>" in get_page(viewer, rows)

    def test_each_says_what_became_of_it(self, viewer: Client) -> None:
        kept, fixed = make_hex_issue(path="/kept"), make_hex_issue(path="/fixed")
        item = make_hex_issue(path="/items/0/colour")
        first, last = make_attempt(1, 1, "failed", issues=(kept, fixed)), make_attempt(1, 2, "passed", issues=(kept,))
        make_counted(first, last)
        make_counted(make_failed(), status=RunStatus.FAILED)
        make_counted(make_failed(), status=RunStatus.CANCELLED)
        best = make_counted(make_failed())
        models.Attempt.objects.filter(step__run=best).update(is_accepted=True)
        # Whether the item moved is in the outputs.
        moved = make_attempt(1, 2, "failed", issues=(make_hex_issue(path="/items/1/colour"),))
        make_counted(make_attempt(1, 1, "failed", issues=(item,)), moved)
        # Whether it was still there the later attempt doesn't say.
        unread = make_attempt(1, 2, "invalid", issues=(make_issue("critical", code="malformed_arguments"),))
        make_counted(make_failed(), unread, status=RunStatus.FAILED)
        url = find_rows_url(get_page(viewer, "/issues/"))
        fates = re.findall(r'"issue-became"><span.*?</svg>(.*?)</span>', get_page(viewer, url, headers=HTMX), re.DOTALL)
        assert fates == [
            *("Not checked again", "Failed", "Failed", "Kept in the output", "Not checked again"),
            *("Kept until the run failed", "Kept in the output", "Fixed by attempt 2", "Still there in attempt 2"),
        ]
        few = count_queries(viewer, url)
        make_counted(first, last)
        assert count_queries(viewer, url) == few <= 10

    def test_issues_are_shown_twenty_at_a_time(self, viewer: Client) -> None:
        many = [make_hex_issue(f"c{number}") for number in range(PAGE_SIZE - 1)]
        make_counted(make_failed(*many), days=2)
        make_counted(make_failed(*many), days=1)
        make_counted(make_failed(make_hex_issue(audit="Other")))
        url: str | None = find_rows_url(get_page(viewer, "/issues/?audit=Hex+colours"))
        pages = []
        while url:
            part = get_page(viewer, url, headers=HTMX)
            pages.append(re.findall(r'href="(/runs/[^"]+)"', part))
            further = re.search(r'hx-get="([^"]+)"', part)
            url = unescape(further[1]) if further else None
        assert [len(page) for page in pages] == [PAGE_SIZE, PAGE_SIZE - 2]
        assert len({link for page in pages for link in page}) == 2 * PAGE_SIZE - 2

    def test_own_issues_are_not_those_of_audits_with_their_code(self, viewer: Client) -> None:
        own = make_issue("critical", "It is not allowed.", code="same")
        make_counted(make_failed(own, make_hex_issue(code="same")))
        part = get_page(viewer, "/issues/?flow=colour-theme&code=same&step=1&of=critical&own=1", headers=HTMX)
        assert part.count("<li>") == 1 and "It is not allowed." in part

    @pytest.mark.parametrize(
        "query", ["of=grave", "of=low&before=x", "of=low&before=1", "of=low&severity=grave", "of=low&flow=lost"]
    )
    def test_what_is_not_valid_is_not_found(self, viewer: Client, query: str) -> None:
        assert viewer.get(f"/issues/?{query}").status_code == 404


def test_rows_of_before_are_counted_again_by_step() -> None:
    make_counted(make_failed(make_hex_issue(), make_hex_issue()), make_failed(step=2))
    kept = make_counted(make_failed(), make_failed(step=2), days=3)
    columns = ("day", "step", "audit", "severity", "issues", "runs", "step_runs", "first_run", "last_run")
    rows = DailyIssues.objects.order_by("day", "step").values_list(*columns)
    expected = [row for row in rows if row[-1] != kept.pk]
    DailyIssues.objects.filter(step=2).delete()
    DailyIssues.objects.update(step=0, issues=9, step_runs=0, first_run=None, last_run=None)
    Run.objects.update(is_counted=True)
    # Retention has deleted other runs of that day.
    day = DailyIssues.objects.order_by("day").values_list("day", flat=True)[0]
    PurgedDay.objects.create(flow=kept.flow, day=day)
    import_module("runs.migrations.0007_daily_issues_by_step").count_again(apps, SimpleNamespace(connection=connection))
    assert list(rows.exclude(day=day)) == expected
    assert list(rows.filter(day=day)) == [(day, 0, "Hex colours", "critical", 9, 1, 1, None, None)]
