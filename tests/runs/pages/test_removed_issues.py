"""Runs whose outputs were removed: pages count their issues, and claim nothing that only their texts could tell."""

from __future__ import annotations

import pytest
from django.test import Client

from runs.models import Run, RunStatus
from runs.retention.purging import remove_outputs
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

FIRST, SECOND, THIRD = (
    make_issue("high", f"Colour {place} is wrong.", audit="Hex colours", code="hex_format", path=f"/{name}")
    for place, name in enumerate(("accent", "ground", "text"))
)
CLAIMS = ("Fixed", "fixed", "Persisted", "persisted", "Still there", "New here", "Returned", "returned")


def make_mended_run() -> Run:
    """Attempt 1 has two issues, attempt 2 mends both and brings another, which attempt 3 mends."""
    return make_stored_run(
        make_attempt(1, 1, "failed", issues=(FIRST, SECOND)),
        make_attempt(1, 2, "failed", issues=(THIRD,)),
        make_attempt(1, 3),
    )


def remove(run: Run) -> None:
    remove_outputs([run.pk])
    run.refresh_from_db()


class TestRunPage:
    def test_issues_are_counted_and_nothing_is_claimed_of_what_became_of_them(self, viewer: Client) -> None:
        run = make_mended_run()
        assert "3 issues: 2 fixed by attempt 2 , 1 fixed by attempt 3" in read_words(get_page(viewer, run_address(run)))
        remove(run)
        page = get_page(viewer, run_address(run))
        words = read_words(page)
        assert (
            "3 issues: 2 in attempt 1 , 1 in attempt 2 . What became of them can’t be told: their texts were removed."
            in words
        )
        assert "Attempt 1: Failed, 2 high" in page and "Attempt 2: Failed, 1 high" in page
        assert not [claim for claim in CLAIMS if claim in words]

    def test_the_page_of_an_attempt_claims_nothing_either(self, viewer: Client) -> None:
        run = make_mended_run()
        remove(run)
        for number, count in ((1, 2), (2, 1), (3, 0)):
            for headers in ({}, HTMX):
                words = read_words(get_page(viewer, f"{run_address(run)}steps/1/attempts/{number}/", headers=headers))
                assert words.count("Hex colours High") == count
                assert not [claim for claim in CLAIMS if claim in words]

    def test_an_update_of_an_open_page_claims_nothing_either(self, viewer: Client) -> None:
        run = make_mended_run()
        remove(run)
        words = read_words(get_page(viewer, f"{run_address(run)}live?revision=1&seen=1.2", headers=HTMX))
        assert "3 issues: 2 in attempt 1 , 1 in attempt 2" in words
        assert not [claim for claim in CLAIMS if claim in words]

    def test_issues_of_a_single_attempt_are_as_many_as_they_were(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(FIRST, SECOND)), status=RunStatus.FAILED)
        remove(run)
        words = read_words(get_page(viewer, run_address(run)))
        assert "2 issues" in words and "What became of them" not in words

    def test_of_many_attempts_it_is_said_how_many_had_issues(self, viewer: Client) -> None:
        run = make_stored_run(*(make_attempt(1, number, "failed", issues=(FIRST,)) for number in range(1, 13)))
        remove(run)
        assert "12 issues in 12 attempts . What became of them can’t be told" in read_words(
            get_page(viewer, run_address(run))
        ).replace("attempts.", "attempts .")

    def test_it_costs_no_more(self, viewer: Client) -> None:
        run = make_mended_run()
        before = count_queries(viewer, run_address(run))
        remove(run)
        assert count_queries(viewer, run_address(run)) <= before


class TestComparison:
    def read(self, viewer: Client, left: Run, right: Run) -> str:
        return read_words(get_page(viewer, f"/runs/compare/?a={left.pk}&b={right.pk}"))

    def store(self, *issues: object) -> Run:
        attempt = make_attempt(1, 1, "failed" if issues else "passed", issues=issues)
        return make_stored_run(attempt, status=RunStatus.FAILED)

    def test_an_issue_that_both_have_is_not_called_another_where_one_run_lost_its_texts(self, viewer: Client) -> None:
        removed, there = self.store(FIRST), self.store(FIRST)
        assert self.read(viewer, removed, there).count("in both") == 2
        remove(removed)
        sentence = f"Which issues both have can’t be told: the texts of those of #{removed.pk} were removed."
        for sides in ((removed, there), (there, removed)):
            words = self.read(viewer, *sides)
            assert words.count(sentence) == 1
            assert "only here" not in words and "in both" not in words

    def test_two_that_lost_them_are_named_both(self, viewer: Client) -> None:
        runs = [self.store(FIRST), self.store(SECOND)]
        for run in runs:
            remove(run)
        words = self.read(viewer, *runs)
        assert f"the texts of those of #{runs[0].pk} and #{runs[1].pk} were removed." in words
        assert "in both" not in words

    def test_what_the_other_run_had_no_issue_for_is_still_known(self, viewer: Client) -> None:
        removed, clean = self.store(FIRST), self.store()
        remove(removed)
        words = self.read(viewer, removed, clean)
        assert "only here" in words and "can’t be told" not in words
