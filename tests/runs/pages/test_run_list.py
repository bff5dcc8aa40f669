"""The list of runs: rows, filters, pages."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django.asserts import assertRedirects

from runs import paging
from runs.facets import add_facets
from runs.models import FacetKind, Run, RunStatus
from runs.pages.run_list import MAX_SEARCH_SECONDS, PAGE_SIZE
from runs.search import index_runs
from tests.engine.builders import make_attempt, make_issue
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import count_queries, get_page, read_words

pytestmark = pytest.mark.django_db


class TestList:
    def test_an_empty_installation_says_what_a_run_is_and_offers_one(self, admin_client: Client) -> None:
        words = read_words(get_page(admin_client, "/runs/"))
        assert "There are no runs" in words
        assert "Run a flow" in words

    def test_a_row_sums_up_its_run(self, viewer: Client) -> None:
        issues = (make_issue("critical"), make_issue("critical"), make_issue("low"))
        run = make_stored_run(
            make_attempt(1, 1, "failed", issues=issues),
            make_attempt(1, 2, "errored"),
            status=RunStatus.ERRORED,
            total_tokens=29_895,
            cost="0.0724",
            is_simulated=False,
        )
        page = get_page(viewer, "/runs/")
        words = read_words(page)
        assert f"Colour theme #{run.pk}, v1 Errored 0 of 3 passed 2 2 critical 1 low 5 min 00 s" in words
        assert "29\N{NARROW NO-BREAK SPACE}895" in page
        assert "$0.0724" in words
        assert re.findall(r"segment segment-(\w+)", page) == ["errored", "waiting", "waiting"]

    def test_unknown_costs_and_nobody_are_dashes_and_no_issues_are_none(self, viewer: Client) -> None:
        make_stored_run()
        assert "None 5 min 00 s 0 — —" in read_words(get_page(viewer, "/runs/"))

    def test_labels_lead_to_their_runs_and_many_are_counted(self, viewer: Client) -> None:
        make_stored_run(labels=["a&b", "nightly", "pilot", "release", "\u202etxt.exe"])
        page = get_page(viewer, "/runs/")
        assert "Label a&b Label nightly Label pilot +2" in read_words(page)
        assert 'href="/runs/?label=a%26b"' in page
        assert 'title="release, \\u202etxt.exe"' in page

    def test_only_who_may_do_something_to_runs_can_choose_them(self, operator: Client) -> None:
        run = make_stored_run()
        box = f'<input type="checkbox" form="bulk" name="run" value="{run.pk}" aria-label="Choose run #{run.pk}">'
        assert box in get_page(operator, "/runs/")
        User.objects.get().user_permissions.set(Permission.objects.filter(codename="view_run"))
        assert 'type="checkbox" form="bulk"' not in get_page(operator, "/runs/")

    def test_runs_are_filtered_by_flow_and_status_in_the_address(self, viewer: Client) -> None:
        kept = make_stored_run(status=RunStatus.FAILED)
        make_stored_run(status=RunStatus.SUCCEEDED)
        make_stored_run(spec=make_page_flow(name="other", title="Other"), status=RunStatus.FAILED)
        page = get_page(viewer, "/runs/?flow=colour-theme&status=failed")
        assert list_runs(page) == [kept.pk]
        assert 'href="/runs/?flow=colour-theme&amp;status=queued"' in page

    def test_each_filter_that_is_set_can_be_taken_away_alone(self, viewer: Client) -> None:
        run = make_stored_run(status=RunStatus.FAILED, cost="0.2", started_by=User.objects.get())
        query = "flow=colour-theme&version=1&status=failed,errored&cost=0.1&by=ada&q=%23" + str(run.pk + 1)
        page = get_page(viewer, f"/runs/?{query}")
        words = read_words(page)
        assert f"Search “#{run.pk + 1}” Remove the filter" in words
        assert "Status Failed or Errored Remove" in words
        assert "Cost over $0.10 Remove" in words
        links = [unescape(url) for url in re.findall(r'<a href="([^"]+)" title="Remove this filter"', page)]
        rest = f"q=%23{run.pk + 1}&status=failed%2Cerrored&cost=0.1&by=ada"
        assert f"/runs/?{rest}" in links  # the version went with its flow
        assert f"/runs/?q=%23{run.pk + 1}&flow=colour-theme&version=1&status=failed%2Cerrored&cost=0.1" in links

    def test_the_form_holds_what_is_filtered_by(self, viewer: Client) -> None:
        make_stored_run()
        page = get_page(
            viewer, "/runs/?flow=colour-theme&version=1&severity=high&tokens=500&from=2026-11-01&status=failed,errored"
        )
        assert '<option value="colour-theme" selected>' in page
        assert '<option value="high" selected>' in page
        assert 'name="tokens" id="filter-tokens" value="500"' in page
        assert 'name="from" id="filter-from" value="2026-11-01"' in page
        assert re.findall(r'name="status" value="(\w+)" checked', page) == ["failed", "errored"]
        assert "More filters 5 set" in read_words(page)

    @pytest.mark.parametrize("mark", ["", "%23"])
    def test_a_number_leads_to_its_run(self, viewer: Client, mark: str) -> None:
        make_stored_run()
        run = make_stored_run()
        for query in (f"q={mark}{run.pk}", f"q={mark}{run.pk}&status=succeeded"):
            assertRedirects(viewer.get(f"/runs/?{query}"), f"/runs/{run.pk}/")

    def test_a_number_of_no_run_is_looked_for_in_texts(self, viewer: Client) -> None:
        run = make_stored_run()
        page = get_page(viewer, f"/runs/?q={run.pk + 1}")
        assert "No run matches" in page
        assert "Open run" not in page

    @pytest.mark.parametrize(
        ("query", "words", "is_listed"),
        [
            ("status=failed", "Open run #{} , which the other filters leave out.", False),
            ("statsu=failed", "There is no filter “statsu”", True),
        ],
    )
    def test_a_number_with_more_to_say_leads_to_its_run_from_the_list(
        self, viewer: Client, query: str, words: str, is_listed: bool
    ) -> None:
        run = make_stored_run()
        page = get_page(viewer, f"/runs/?q={run.pk}&{query}")
        assert f'<a href="/runs/{run.pk}/">Open run #{run.pk}</a>' in page
        assert words.format(run.pk) in read_words(page)
        assert list_runs(page) == [run.pk] * is_listed

    def test_a_search_shows_where_the_words_stand_and_leads_there(self, viewer: Client) -> None:
        issue = make_issue(description="Names no <customer>, only a reminder.", code="unnamed")
        attempts = (make_attempt(1, 1, "failed", issues=(issue,)), make_attempt(1, 2))
        run = make_stored_run(*attempts, input={"topic": "A reminder \u202efor tea"})
        index_runs([run.pk])
        page = get_page(viewer, "/runs/?q=customer reminder")
        lines = read_words(page).replace("\\u202e", "").split("just now" if "just now" in page else "ago")[-1]
        assert "Input A reminder for tea Step 1, attempt 1, issue Names no < customer >, only a reminder ." in lines
        assert f'<a href="/runs/{run.pk}/#s0a1">Input</a>' in page
        assert f'<a href="/runs/{run.pk}/#s1a1">Step 1, attempt 1, issue</a>' in page
        assert "Names no &lt;<mark>customer</mark>&gt;, only a <mark>reminder</mark>" in page
        assert list_runs(page) == [run.pk]

    def test_a_search_costs_the_same_queries_for_few_runs_and_for_many(self, viewer: Client) -> None:
        counts = []
        for more in (1, 8):
            index_runs([make_stored_run(make_attempt(1, 1), input={"topic": "tea"}).pk for _ in range(more)])
            counts.append(count_queries(viewer, "/runs/?q=tea"))
        assert counts[0] == counts[1]

    def test_no_match_offers_to_show_all(self, viewer: Client) -> None:
        make_stored_run()
        page = get_page(viewer, "/runs/?status=queued")
        assert "No run matches" in page
        assert '<a class="button" href="/runs/">Show all runs</a>' in page

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            (
                "status=lost",
                "“lost” is not a status; it can be queued, running, succeeded, failed, errored, cancelled.",
            ),
            ("flow=%3Cscript%3E", "There is no flow “&lt;script&gt;”. The filter is left out."),
            ("before=abc", "“abc” is not a run number"),
            ("before=99999999999999999999999", "is not a run number"),
            ("after=-1", "“-1” is not a run number"),
            ("after=1&before=9", "can’t be combined"),
            ("from=yesterday", "“yesterday” is not a day such as 2026-11-21"),
            ("label=%00", "The filter is left out."),
            ("by=%E2%80%AEada", "There is no user “\\u202eada”"),
            ("bogus=1", "There is no filter “bogus”; the filters are q, flow, version, status,"),
            ("bogus=1&statsu=failed", "There is no filter “bogus” or “statsu”; the filters are q,"),
            ("%3Cb%3E%E2%80%AE=", "There is no filter “&lt;b&gt;\\u202e”"),
        ],
    )
    def test_a_filter_that_makes_no_sense_gets_a_sentence_and_all_runs(
        self, viewer: Client, query: str, sentence: str
    ) -> None:
        run = make_stored_run()
        page = get_page(viewer, f"/runs/?{query}")
        assert sentence in page
        assert f"#{run.pk}" in page

    def test_the_names_of_pages_are_no_unknown_filters(self, viewer: Client) -> None:
        run = make_stored_run()
        for query in (f"before={run.pk + 1}", f"after={run.pk - 1}"):
            assert "There is no filter" not in get_page(viewer, f"/runs/?{query}")

    def test_pages_follow_each_other_without_gaps_and_stay_when_new_runs_start(self, viewer: Client) -> None:
        version = make_version()
        numbers = [make_run(version).pk for _ in range(2 * PAGE_SIZE + 10)][::-1]

        def read_page(address: str) -> tuple[list[int], dict[str, str]]:
            page = get_page(viewer, address)
            links = {rel: unescape(url) for url, rel in re.findall(r'href="([^"]+)" rel="(\w+)"', page)}
            return list_runs(page), links

        first, links = read_page("/runs/?status=queued")
        assert (first, set(links)) == (numbers[:PAGE_SIZE], {"next"})
        make_run(version)
        second, links = read_page(links["next"])
        assert (second, set(links)) == (numbers[PAGE_SIZE : 2 * PAGE_SIZE], {"next", "prev"})
        assert "status=queued" in links["next"]
        third, last_links = read_page(links["next"])
        assert (third, set(last_links)) == (numbers[2 * PAGE_SIZE :], {"prev"})
        assert read_page(links["prev"])[0] == numbers[:PAGE_SIZE]

    def test_every_page_but_the_first_leads_to_the_newest_with_the_same_filters(self, viewer: Client) -> None:
        run = make_stored_run()
        newest = '<a class="button" href="/runs/?status=succeeded">'
        assert newest not in get_page(viewer, "/runs/?status=succeeded")
        assert newest in get_page(viewer, f"/runs/?status=succeeded&before={run.pk}")
        assert newest in get_page(viewer, f"/runs/?status=succeeded&after={run.pk}")

    def test_a_page_keeps_searching_window_by_window_until_it_is_full_or_time_is_over(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paging, "FIRST_LOOK", 0)
        monkeypatch.setattr("runs.filters.WINDOW", PAGE_SIZE)
        version = make_version()
        oldest = make_run(version, cost=2)
        for _ in range(3 * PAGE_SIZE):
            make_run(version)
        newest = make_run(version, cost=2)
        page = get_page(viewer, "/runs/?cost=1&status=queued")
        assert list_runs(page) == [newest.pk]
        assert 'hx-trigger="load"' in page and "No run matches" not in page
        found = []
        while (more := find_next_window(page)) is not None:
            page = viewer.get(more, headers={"HX-Request": "true"}).content.decode()
            found += list_runs(page)
        assert found == [oldest.pk]
        assert 'data-testid="search-progress"' not in page and "<html" not in page

        began = int(time.time()) - MAX_SEARCH_SECONDS
        page = get_page(viewer, f"/runs/?cost=3&status=queued&began={began}")
        assert 'data-testid="search-progress"' in page and find_next_window(page) is None
        assert "Keep searching" in page

    def test_a_page_that_fills_up_asks_for_no_more_than_it_lacks(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = make_version()
        for _ in range(5):
            make_run(version, cost=2)
        page = viewer.get(f"/runs/?cost=1&found={PAGE_SIZE - 3}", headers={"HX-Request": "true"}).content.decode()
        assert len(list_runs(page)) == 3
        assert 'rel="next"' in page

    def test_opening_an_address_beyond_all_runs_is_no_error(self, viewer: Client) -> None:
        make_stored_run()
        for query in (f"before={2**63 - 1}", f"after={2**63 - 1}", "before=0", "before=1&status=failed&cost=1"):
            get_page(viewer, f"/runs/?{query}")

    @pytest.mark.parametrize(
        ("query", "count"),
        [
            ("", 9),
            ("?status=succeeded", 9),
            ("?flow=colour-theme", 10),
            ("?flow=colour-theme&version=1", 11),
            ("?severity=low&label=pilot", 7),
            ("?severity=low&flow=colour-theme", 10),
            ("?severity=low&flow=colour-theme&by=ada&cost=0&from=2000-01-01", 11),
        ],
    )
    def test_the_number_of_queries_does_not_grow_with_runs(self, viewer: Client, query: str, count: int) -> None:
        make_filtered_run(started_by=User.objects.get())
        few = count_queries(viewer, f"/runs/{query}")
        for _ in range(5):
            make_filtered_run(started_by=User.objects.get())
        assert (few, count_queries(viewer, f"/runs/{query}")) == (count, count)


def make_filtered_run(**fields: Any) -> Run:
    """A run with an issue that the list can be filtered by, whose last step is left out."""
    run = make_retried_run(steps_passed=2, cost="0.2", **fields)
    add_facets([(run.pk, (FacetKind.SEVERITY, "low"))])
    return run


def list_runs(page: str) -> list[int]:
    """The numbers of the runs in the rows of a page."""
    return [int(number) for number in re.findall(r'<a class="run-name" href="/runs/(\d+)/"', page)]


def find_next_window(page: str) -> str | None:
    """The address that a page loads by itself to continue its search."""
    found = re.search(r'hx-get="([^"]+)" hx-trigger="load"', page)
    return unescape(found[1]) if found else None
