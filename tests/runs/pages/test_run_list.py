"""The list of runs: rows, filters, pages, and the views that users keep under a name."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from pytest_django.asserts import assertRedirects

from runs import paging
from runs.facets import add_facets
from runs.models import Attempt, FacetKind, RunStatus, SavedView
from runs.pages.run_list import MAX_SEARCH_SECONDS, PAGE_SIZE
from runs.search import index_runs
from tests.engine.builders import make_attempt, make_issue
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_plain, read_words

pytestmark = pytest.mark.django_db

FILTERS = "flow=colour-theme&status=failed%2Cerrored"


def list_runs(page: str) -> list[int]:
    """The numbers of the runs in the rows of a page."""
    return [int(number) for number in re.findall(r'<a class="run-name" href="/runs/(\d+)/"', page)]


def find_next_window(page: str) -> str | None:
    """The address that a page loads by itself to continue its search."""
    found = re.search(r'hx-get="([^"]+)" hx-trigger="load"', page)
    return unescape(found[1]) if found else None


class TestRows:
    def test_a_row_sums_up_its_run(self, viewer: Client) -> None:
        issues = (make_issue("critical"), make_issue("critical"), make_issue("low"))
        attempts = (make_attempt(1, 1, "failed", issues=issues), make_attempt(1, 2, "errored"))
        run = make_stored_run(*attempts, status=RunStatus.ERRORED, total_tokens=29_895, cost="0.0724")
        words = read_plain(viewer, "/runs/")
        assert f"Colour theme #{run.pk}, v1 Errored 0 of 3 passed 2 2 Critical 1 Low 5 min 00 s" in words
        assert "29 895 $0.0724" in words
        make_stored_run()
        assert "None 5 min 00 s 0 — —" in read_plain(viewer, "/runs/")

    def test_a_step_is_drawn_as_its_attempt_that_counts(self, viewer: Client) -> None:
        run = make_stored_run(
            make_attempt(1, 1, "failed"),
            make_attempt(1, 2, "invalid"),
            make_attempt(2, 1),
            make_attempt(3, 1, "failed"),
        )
        Attempt.objects.filter(step__run=run, step__index=1, number=1).update(is_accepted=True)
        page = get_page(viewer, "/runs/")
        assert sorted(re.findall(r'class="segment-(\w+)"', page)) == ["accepted", "failed", "passed"]

    def test_labels_lead_to_their_runs_and_many_are_counted(self, viewer: Client) -> None:
        make_stored_run(labels=["a&b", "nightly", "pilot", "release", "\u202etxt.exe"])
        page = get_page(viewer, "/runs/")
        assert "Label a&b Label nightly Label pilot +2" in read_words(page)
        assert 'href="/runs/?label=a%26b"' in page and 'title="release, \\u202etxt.exe"' in page


class TestFilters:
    def test_runs_are_filtered_by_the_address_and_the_form_holds_it(self, viewer: Client) -> None:
        kept = make_stored_run(status=RunStatus.FAILED, total_tokens=7)
        make_stored_run(status=RunStatus.SUCCEEDED)
        make_stored_run(spec=make_page_flow(name="other", title="Other"), status=RunStatus.FAILED)
        page = get_page(viewer, "/runs/?flow=colour-theme&version=1&status=failed,errored&from=2020-11-01&tokens=0")
        assert list_runs(page) == [kept.pk]
        assert '<option value="colour-theme" selected>' in page
        assert 'name="tokens" id="filter-tokens" value="0"' in page
        assert 'name="from" id="filter-from" value="2020-11-01"' in page
        assert re.findall(r'name="status" value="(\w+)" checked', page) == ["failed", "errored"]

    @pytest.mark.parametrize("mark", ["", "%23"])
    def test_a_number_leads_to_its_run(self, viewer: Client, mark: str) -> None:
        run = make_stored_run()
        for query in (f"q={mark}{run.pk}", f"q={mark}{run.pk}&status=succeeded"):
            assertRedirects(viewer.get(f"/runs/?{query}"), f"/runs/{run.pk}/")
        assert "Open run" not in get_page(viewer, f"/runs/?q={mark}{run.pk + 1}")

    def test_a_search_shows_where_the_words_stand_and_leads_there(self, viewer: Client) -> None:
        issue = make_issue(description="Names no <customer>, only a reminder.", code="unnamed")
        attempts = (make_attempt(1, 1, "failed", issues=(issue,)), make_attempt(1, 2))
        run = make_stored_run(*attempts, input={"topic": "A reminder \u202efor tea"})
        index_runs([run.pk])
        page = get_page(viewer, "/runs/?q=customer reminder")
        assert list_runs(page) == [run.pk]
        assert f'<a href="/runs/{run.pk}/#s0a1">Input</a>' in page
        assert f'<a href="/runs/{run.pk}/steps/1/attempts/1/">Step 1, attempt 1, issue</a>' in page
        assert "Names no &lt;<mark>customer</mark>&gt;, only a <mark>reminder</mark>" in page
        assert "\u202e" not in page


class TestPages:
    def test_they_lead_back_and_forth_and_stay_when_new_runs_start(self, viewer: Client) -> None:
        version = make_version()
        numbers = [make_run(version).pk for _ in range(2 * PAGE_SIZE + 10)][::-1]

        def read_page(address: str) -> tuple[list[int], dict[str, str]]:
            page = get_page(viewer, address)
            return list_runs(page), {rel: unescape(url) for url, rel in re.findall(r'href="([^"]+)" rel="(\w+)"', page)}

        first, links = read_page("/runs/?status=queued")
        assert (first, set(links)) == (numbers[:PAGE_SIZE], {"next"})
        make_run(version)
        second, links = read_page(links["next"])
        assert (second, set(links)) == (numbers[PAGE_SIZE : 2 * PAGE_SIZE], {"next", "prev"})
        assert read_page(links["prev"])[0] == numbers[:PAGE_SIZE]
        for query in (f"before={2**63 - 1}", f"after={2**63 - 1}", "before=0", "before=1&status=failed&cost=1"):
            get_page(viewer, f"/runs/?{query}")

    def test_a_search_goes_on_window_by_window_until_a_page_is_full_or_time_is_over(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paging, "FIRST_SCAN_SIZE", 0)
        monkeypatch.setattr(paging, "WINDOW", PAGE_SIZE)
        version = make_version()
        for _ in range(3 * PAGE_SIZE):
            make_run(version)
        make_run(version, cost=2)
        address = "/runs/?cost=1&status=queued"
        page = get_page(viewer, address)
        assert find_next_window(page) is not None and "No run matches" not in page
        page = get_page(viewer, f"{address}&began={int(time.time()) - MAX_SEARCH_SECONDS}")
        assert 'data-testid="search-progress"' in page and find_next_window(page) is None
        # One that fills up asks for no more than it lacks.
        for _ in range(5):
            make_run(version, cost=2)
        page = get_page(viewer, f"/runs/?cost=1&found={PAGE_SIZE - 3}", headers=HTMX)
        assert len(list_runs(page)) == 3 and 'rel="next"' in page

    @pytest.mark.parametrize(
        ("query", "count"),
        [
            ("", 10),
            ("?flow=colour-theme&version=1", 12),
            ("?severity=low&label=pilot", 8),
            ("?severity=low&flow=colour-theme&by=ada&cost=0&from=2000-01-01", 12),
            ("?q=tea", None),
        ],
    )
    def test_the_number_of_queries_does_not_grow_with_runs(self, viewer: Client, query: str, count: int | None) -> None:
        def make() -> None:
            run = make_retried_run(steps_passed=2, cost="0.2", started_by=User.objects.get())
            add_facets([(run.pk, (FacetKind.SEVERITY, "low"))])
            index_runs([run.pk])

        make()
        few = count_queries(viewer, f"/runs/{query}")
        for _ in range(5):
            make()
        assert few == count_queries(viewer, f"/runs/{query}") == (count or few)


def save_view(client: Client, name: str, query: str = FILTERS, **values: str) -> str:
    """Save filters under a name as the form of the list does; gives the level of the message that follows."""
    make_version(make_page_flow())
    answer = client.post(reverse("runs:saved-view-add"), {"name": name, "query": query, **values}, follow=True)
    assert answer.status_code == 200
    (message,) = answer.context["messages"]
    return str(message.level_tag)


def store_view(name: str, query: str, owner: str = "ada", **fields: Any) -> SavedView:
    user, _ = User.objects.get_or_create(username=owner)
    return SavedView.objects.create(owner=user, name=name, query=query, **fields)


def read_tabs(client: Client, query: str = "") -> tuple[str, int | None]:
    """The name of the current tab, and the number of the view that the page offers to delete."""
    page = unescape(get_page(client, f"/runs/?{query}"))
    bar = re.search(r'(?s)<nav class="view-tabs".*?</nav>', page)
    current = re.search(r'aria-current="page"[^>]*>([^<]*)', bar[0]) if bar else None
    offered = re.search(r'action="/runs/views/(\d+)/delete/"', page)
    return current[1] if current else "", int(offered[1]) if offered else None


class TestSavedViews:
    def test_a_saved_view_is_a_tab_that_leads_to_its_filters(self, viewer: Client) -> None:
        assert save_view(viewer, "  Not   passed ") == "success"
        assert f'<a href="/runs/?{FILTERS}">Not passed</a>' in unescape(get_page(viewer, "/runs/"))
        assert read_tabs(viewer, FILTERS) == ("Not passed", SavedView.objects.get().pk)
        assert read_tabs(viewer) == ("All runs", None)
        store_view("Both", "label=a&label=b")
        assert (read_tabs(viewer, "label=b")[1], read_tabs(viewer, "label=a&label=b")[0]) == (None, "Both")
        save_view(viewer, "Mine", "before=7&status=failed&cost=much&next=//elsewhere")
        assert SavedView.objects.get(name="Mine").query == "status=failed"

    @pytest.mark.parametrize(
        ("name", "query"),
        [(" ", FILTERS), ("x" * 61, FILTERS), ("a\u202eb", FILTERS), ("All", ""), ("All", "status=\x00")],
    )
    def test_a_bad_name_or_no_filter_is_refused(self, viewer: Client, name: str, query: str) -> None:
        assert save_view(viewer, name, query) == "error"
        assert not SavedView.objects.exists()

    @pytest.mark.parametrize(
        ("query", "current"),
        [
            # Not the view that has the filters which are left.
            ("flow=gone&status=failed&before=900", "Old"),
            ("status=failed", "Failed"),
            ("", "All runs"),
        ],
    )
    def test_a_view_with_filters_that_are_no_longer_valid_can_be_deleted(
        self, viewer: Client, query: str, current: str
    ) -> None:
        views = {"Failed": "status=failed", "Old": "flow=gone&status=failed"}
        stored = {name: store_view(name, kept).pk for name, kept in views.items()}
        assert read_tabs(viewer, query) == (current, stored.get(current))

    def test_sharing_takes_the_permission_to_change_runs(self, viewer: Client) -> None:
        save_view(viewer, "Mine", shared="yes")
        User.objects.get().user_permissions.add(Permission.objects.get(codename="change_run"))
        save_view(viewer, "Ours", shared="yes")
        assert list(SavedView.objects.values_list("name", "is_shared")) == [("Mine", False), ("Ours", True)]
