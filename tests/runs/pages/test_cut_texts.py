"""Pages of runs whose audits and expressions quote what a model wrote, however long that is."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from flows.engine.history import Attempt
from runs.models import Run, RunStatus
from runs.pages.cut_texts import LONGEST_TEXT, MOST_SUGGESTIONS, cut_text
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.attempt_reading import find_attempts
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page, read_words, run_address

pytestmark = pytest.mark.django_db

MEGABYTE = 1_000_000
LONG = "<word> " * (MEGABYTE // 7)
MORE = f"({len(LONG) - LONGEST_TEXT:,} characters more in the JSON of the attempt )".replace(",", " ")


def make_failed(number: int = 1, *, count: int = 5, **fields: Any) -> Attempt:
    issues = tuple(make_issue("high", LONG, audit="Quotes", path=f"/{place}", **fields) for place in range(count))
    return make_attempt(1, number, "failed", issues=issues, failure_reason=LONG)


def make_quoting_run(**fields: Any) -> Run:
    return make_stored_run(
        make_failed(**fields),
        status=RunStatus.FAILED,
        blocking_step=1,
        blocking_attempt=1,
        end_sentence=f"Step 1 “Step 1” did not pass in 1 attempt: {LONG}",
    )


class TestCutting:
    def test_a_text_that_fits_is_whole(self) -> None:
        cut = cut_text("x" * LONGEST_TEXT)
        assert (cut.text, cut.left_out, str(cut)) == ("x" * LONGEST_TEXT, 0, "x" * LONGEST_TEXT)

    def test_no_code_of_an_invisible_character_is_cut_in_two(self) -> None:
        cut = cut_text("\u202e" * 30, 10)
        assert str(cut) == "\\u202e" * 10 + "…"
        assert cut.left_out == 20


class TestPages:
    def test_megabytes_that_an_audit_quotes_are_cut_and_it_is_said_where_they_are(self, viewer: Client) -> None:
        run = make_quoting_run()
        page = get_page(viewer, run_address(run))
        assert len(page) < 200_000
        words = read_words(page)
        # Five descriptions and the reason of the attempt.
        assert words.count(MORE) == 6
        address = f"{run_address(run)}steps/1/attempts/1.json"
        assert f'<a href="{address}">the JSON of the attempt</a>' in page
        attempt: Any = viewer.get(address).json()
        assert attempt["failure_reason"] == LONG
        assert [issue["description"] for issue in attempt["issues"]] == [LONG] * 5

    def test_the_sentence_that_the_run_ended_with_is_cut_too(self, viewer: Client) -> None:
        run = make_quoting_run()
        page = get_page(viewer, run_address(run))
        address = f"{run_address(run).removesuffix('/')}.json"
        verdict = page.partition('<p class="verdict">')[2].partition("</p>")[0]
        assert verdict.startswith('<a href="#s1a1">Step 1 “Step 1”</a> did not pass in 1 attempt: &lt;word&gt;')
        assert f'more in <a href="{address}">the JSON of the run</a>' in verdict
        assert len(verdict) < 5_000
        run_document: Any = viewer.get(address).json()
        assert run_document["end_sentence"] == run.end_sentence

    def test_the_overview_shows_the_beginning(self, viewer: Client) -> None:
        for _ in range(3):
            make_quoting_run()
        page = get_page(viewer, "/")
        assert len(page) < 60_000
        assert read_words(page).count("did not pass in 1 attempt: <word> <word>") == 3
        assert read_words(page).count("…") >= 3

    def test_a_comparison_cuts_both_sides(self, viewer: Client) -> None:
        left, right = make_quoting_run(), make_quoting_run()
        page = get_page(viewer, f"/runs/compare/?a={left.pk}&b={right.pk}")
        assert len(page) < 200_000
        assert read_words(page).count(MORE) == 10
        assert page.count(f'<a href="{run_address(right)}steps/1/attempts/1.json">the JSON of the attempt</a>') == 5
        assert f'<a href="{run_address(left).removesuffix("/")}.json">the JSON of the run</a>' in page

    def test_suggestions_and_what_an_audit_adds_are_cut_too(self, viewer: Client) -> None:
        run = make_quoting_run(
            count=1, suggestions=("Write " + LONG,) * (MOST_SUGGESTIONS + 3), context={"rows": [LONG] * 5}, vendor=LONG
        )
        page = get_page(viewer, f"{run_address(run)}steps/1/attempts/1/")
        assert len(page) < 200_000
        words = read_words(page)
        assert words.count("Write <word>") == MOST_SUGGESTIONS
        assert "and 3 suggestions more" in words
        assert words.count("Only the beginning is shown. The JSON of the attempt has all of it.") == 2

    def test_what_a_provider_said_is_cut_too(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), status=RunStatus.ERRORED)
        run.steps.get().attempts.update(error={"code": "connection", "message": LONG, "status": 500})
        assert len(get_page(viewer, run_address(run))) < 100_000


class TestRoom:
    def test_attempts_with_much_to_read_are_loaded_once_somebody_opens_them(self, viewer: Client) -> None:
        run = make_stored_run(*(make_failed(number, count=25) for number in range(1, 11)))
        page = get_page(viewer, run_address(run))
        assert len(page) < 400_000
        found = find_attempts(page)
        assert [id for id, how in found.items() if how == "open"] == ["s1a9", "s1a10"]
        # The same of short words still comes whole.
        short = tuple(make_issue("high", "Too short.", path=f"/{place}") for place in range(10))
        run = make_stored_run(*(make_attempt(1, number, "failed", issues=short) for number in range(1, 11)))
        assert set(find_attempts(get_page(viewer, run_address(run))).values()) == {"open"}

    def test_so_are_those_whose_audits_add_much(self, viewer: Client) -> None:
        few = tuple(make_issue("high", "Short.", path=f"/{place}", context={"row": "x" * 20_000}) for place in range(4))
        run = make_stored_run(*(make_attempt(1, number, "failed", issues=few) for number in range(1, 5)))
        assert list(find_attempts(get_page(viewer, run_address(run))).values()) == ["closed"] * 3 + ["open"]
