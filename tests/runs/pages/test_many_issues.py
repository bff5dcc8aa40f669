"""Runs whose attempts have thousands of issues: pages stay short, and read whole only what they show."""

from __future__ import annotations

import re
from collections.abc import Collection
from html import unescape
from typing import Any
from urllib.parse import urljoin

import pytest
from django.test import Client

from flows.engine.history import Attempt
from runs import models
from runs.history.issues import MAX_LISTED_ISSUES
from runs.models import Run, RunStatus
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import begin_attempt, make_asked_run, make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, attempt_address, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

MANY = 450


@pytest.fixture
def full_rows(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The issues that are read with all that they hold, one entry each."""
    read: list[Any] = []
    build = models.Issue.from_db

    def note(db: str | None, names: Collection[str], values: Collection[Any]) -> models.Issue:
        issue = build(db, names, values)
        if "context" in names:
            read.append(issue)
        return issue

    monkeypatch.setattr(models.Issue, "from_db", note)
    return read


def make_failed(number: int, count: int = MANY) -> Attempt:
    """An attempt with this number of issues, of which every tenth is critical; those come last."""
    issues = tuple(
        make_issue("critical" if place >= count - count // 10 else "low", audit="Items", path=f"/items/{place}")
        for place in range(count)
    )
    return make_attempt(1, number, "failed", output={"items": list(range(count))}, issues=issues)


@pytest.fixture
def run(db: None) -> Run:
    return make_stored_run(*(make_failed(number) for number in (1, 2, 3)), status=RunStatus.FAILED)


def list_shown(page: str) -> list[str]:
    """The ids of the issues that a page shows."""
    return re.findall(r'<li class="issue" id="([^"]+)"', page)


def test_the_page_of_a_run_stays_short_and_counts_all(viewer: Client, run: Run, full_rows: list[Any]) -> None:
    page = get_page(viewer, run_address(run))
    assert len(page) < 500_000 and len(full_rows) <= MAX_LISTED_ISSUES
    assert "450 issues: all persisted" in read_words(page)
    assert "Critical 135 High 0 Medium 0 Low 1215" in read_words(page)


def test_an_update_reads_nothing_whole_that_it_does_not_show(viewer: Client, full_rows: list[Any]) -> None:
    run = make_stored_run(*(make_failed(number) for number in (1, 2)), status=RunStatus.RUNNING)
    begin_attempt(run, 1, 3)
    update = get_page(viewer, f"{run_address(run)}live?revision=1&seen=1.2&at=s1a3", headers=HTMX)
    assert len(update) < 200_000 and full_rows == []
    assert "Attempt 1: Failed, 45 critical, 405 low" in update


def test_the_most_severe_issues_are_shown_and_all_can_be_reached(
    viewer: Client, run: Run, full_rows: list[Any]
) -> None:
    address = attempt_address(run, 1, 1)
    seen: list[str] = []
    asked: str | None = address
    while asked:
        full_rows.clear()
        page = get_page(viewer, asked)
        assert len(page) < 1_000_000 and 0 < len(full_rows) <= MAX_LISTED_ISSUES
        seen += list_shown(page)
        following = re.search(r'<a href="([^"]+\?issues=\d+)" rel="next">', page)
        asked = following and following[1]
    assert seen == [f"i{place}" for place in (*range(405, 450), *range(405))]
    assert "Issues 401 to 450 of 450, most severe first" in read_words(page)
    assert 'href="#i404-at">/items/404</a>' in page


def test_a_page_that_is_not_there_is_not_found(viewer: Client, run: Run) -> None:
    for asked in ("4", "0", "-1", "x", "", "9" * 30):
        assert viewer.get(f"{attempt_address(run, 1, 1)}?issues={asked}").status_code == 404, asked


def list_links(viewer: Client, address: str, pattern: str) -> list[str]:
    """Where the links lead that ``pattern`` finds on a page."""
    return [urljoin(address, unescape(link)) for link in re.findall(pattern, get_page(viewer, address))]


def assert_leads_to_its_line(viewer: Client, target: str) -> None:
    address, _, anchor = target.partition("#")
    assert anchor in list_shown(get_page(viewer, address)), target


class TestLinks:
    """Links to issues beyond the first page of their attempt lead to the page that has them."""

    def test_links_to_issues_sent_to_the_model_fixed_and_hidden_from_it(self, viewer: Client) -> None:
        grave = tuple(make_issue("high", audit="Items", path=f"/items/{place}") for place in range(MAX_LISTED_ISSUES))
        issues = (make_issue("low", audit="Tone"), *grave, make_issue("critical", audit="Tone"))
        spec = make_page_flow(make_step(1, issue_severity_filter="high"))
        run = make_asked_run(spec, 2, issues=issues)
        own, earlier = attempt_address(run, 1, 3), attempt_address(run, 1, 1)
        for address in (own, f"{own}request/"):
            targets = list_links(viewer, address, r'<a href="([^"]*#i0)"')
            assert f"{earlier}?issues=2#i0" in targets
            assert_leads_to_its_line(viewer, f"{earlier}?issues=2#i0")
        links = list_links(viewer, f"{own}request/", r'<a href="([^"]*#i\d+)"')
        assert {f"{earlier}#i1", f"{earlier}?issues=2#i200"} <= set(links)

    def test_an_issue_is_found_by_its_position(self, admin_client: Client, run: Run) -> None:
        own = attempt_address(run, 1, 1)
        for position, page in ((405, 1), (154, 1), (155, 2), (404, 3)):
            answer = admin_client.get(f"{own}?issue={position}")
            where = own if page == 1 else f"{own}?issues={page}"
            assert (answer.status_code, answer["Location"]) == (302, f"{where}#i{position}")
        for wrong in ("450", "-1", "x", "", "9" * 30):
            assert admin_client.get(f"{own}?issue={wrong}").status_code == 404
        # The admin leads to them so.
        issue = models.Issue.objects.get(attempt__step__run=run, attempt__number=1, position=300)
        page_of_admin = admin_client.get(f"/admin/runs/issue/{issue.pk}/change/").content.decode()
        assert f'<a href="{own}?issue=300">' in page_of_admin
        assert_leads_to_its_line(admin_client, admin_client.get(f"{own}?issue=300")["Location"])
