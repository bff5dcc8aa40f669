"""The list of runs: rows, filters, pages."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models import RunStatus
from runs.pages.run_list import PAGE_SIZE
from tests.engine.builders import make_attempt, make_issue
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import count_queries, get_page, read_words

pytestmark = pytest.mark.django_db


class TestList:
    def test_home_leads_to_the_runs(self, viewer: Client) -> None:
        assert viewer.get("/")["Location"] == "/runs/"

    def test_an_empty_installation_says_what_a_run_is_and_offers_one(self, admin_client: Client) -> None:
        words = read_words(get_page(admin_client, "/runs/"))
        assert "No runs yet" in words
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

    def test_runs_are_filtered_by_flow_and_status_in_the_address(self, viewer: Client) -> None:
        kept = make_stored_run(status=RunStatus.FAILED)
        make_stored_run(status=RunStatus.SUCCEEDED)
        make_stored_run(spec=make_page_flow(name="other", title="Other"), status=RunStatus.FAILED)
        page = get_page(viewer, "/runs/?flow=colour-theme&status=failed")
        assert re.findall(r'href="/runs/(\d+)/"', page) == [str(kept.pk)]
        assert 'href="/runs/?flow=colour-theme&amp;status=queued"' in page

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
            ("flow=%3Cscript%3E", "There is no flow “&lt;script&gt;”; runs of all flows are shown."),
            ("before=abc", "“abc” is not a run number"),
            ("before=99999999999999999999999", "is not a run number"),
            ("after=-1", "“-1” is not a run number"),
            ("after=1&before=9", "can’t be combined"),
        ],
    )
    def test_a_filter_that_makes_no_sense_gets_a_sentence_and_all_runs(
        self, viewer: Client, query: str, sentence: str
    ) -> None:
        run = make_stored_run()
        page = get_page(viewer, f"/runs/?{query}")
        assert sentence in page
        assert f"#{run.pk}" in page

    def test_pages_follow_each_other_without_gaps_and_stay_when_new_runs_start(self, viewer: Client) -> None:
        version = make_version()
        numbers = [make_run(version).pk for _ in range(2 * PAGE_SIZE + 10)][::-1]

        def read_page(address: str) -> tuple[list[int], dict[str, str]]:
            page = get_page(viewer, address)
            links = {rel: unescape(url) for url, rel in re.findall(r'href="([^"]+)" rel="(\w+)"', page)}
            return [int(number) for number in re.findall(r'href="/runs/(\d+)/"', page)], links

        first, links = read_page("/runs/?status=queued")
        assert (first, set(links)) == (numbers[:PAGE_SIZE], {"next"})
        make_run(version)
        second, links = read_page(links["next"])
        assert (second, set(links)) == (numbers[PAGE_SIZE : 2 * PAGE_SIZE], {"next", "prev"})
        assert "status=queued" in links["next"]
        third, last_links = read_page(links["next"])
        assert (third, set(last_links)) == (numbers[2 * PAGE_SIZE :], {"prev"})
        assert read_page(links["prev"])[0] == numbers[:PAGE_SIZE]

    def test_the_number_of_queries_does_not_grow_with_runs(self, viewer: Client) -> None:
        make_retried_run()
        few = count_queries(viewer, "/runs/")
        for _ in range(5):
            make_retried_run(started_by=User.objects.get())
        assert count_queries(viewer, "/runs/") == few == 8
