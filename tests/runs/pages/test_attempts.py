"""One attempt: its part of the page of the run, a page of its own, and what comes only when it is asked for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from flows.engine.history import Attempt
from runs.history.texts import LONGEST_TEXT, MOST_SUGGESTIONS, cut_text
from runs.models import Run, RunStatus
from runs.pages.opened_attempts import ROOM, Openable, choose_open
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import (
    HTMX,
    attempt_address,
    count_queries,
    find_attempts,
    get_page,
    read_words,
    run_address,
)

pytestmark = pytest.mark.django_db

LONG = "<word> " * 150_000
MORE = f"({len(LONG) - LONGEST_TEXT:,} characters more in the JSON of the attempt )".replace(",", " ")


class TestAttempt:
    def test_its_output_and_issues_come_alone_or_as_a_page(self, viewer: Client) -> None:
        run = make_retried_run()
        part = get_page(viewer, attempt_address(run, 1, 1), headers=HTMX)
        page = get_page(viewer, attempt_address(run, 1, 1))
        assert "<html" not in part and "<html" in page
        assert '<a class="line-link" href="#s1a1-i0"' in part
        assert f'href="/runs/{run.pk}/#s1a1"' in page
        for shown in (part, page):
            assert "“red” is no hex colour." in shown and "Fixed by attempt 2" in read_words(shown)

    def test_a_line_that_several_issues_point_at_leads_to_each(self, viewer: Client) -> None:
        issues = [make_issue("high", audit=f"Audit <{number}>", path="/text") for number in range(7)]
        run = make_stored_run(
            make_attempt(1, 1, "failed", output={"text": "x"}),
            make_attempt(1, 2, "failed", output={"text": "y"}, issues=tuple(issues)),
        )
        for query in ("", "?diff=1"):
            part = get_page(viewer, f"{attempt_address(run, 1, 2)}{query}", headers=HTMX)
            line = part[part.index('id="s1a2-l2"') :].partition("\n</span>")[0]
            assert re.findall(r'href="#(\S+)"', line) == [f"s1a2-i{number}" for number in (0, 0, 1, 2, 3, 4, 5)]
            assert 'data-more="2"' in line and "Audit &lt;4&gt;; 2 more" in line
            # What is copied is the output and nothing else.
            assert read_words(line.partition(">")[2]) in ('"text" : "y"', '~ Changed: "text" : "x" → "y"')

    def test_a_closed_attempt_is_loaded_when_it_is_opened(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), make_attempt(1, 2))
        page = get_page(viewer, run_address(run))
        address = attempt_address(run, 1, 1)
        assert f'data-load="{address}"' in page and "The provider failed (500)." not in page
        assert "The provider failed (500)." in get_page(viewer, address, headers=HTMX)

    @pytest.mark.parametrize(("step", "number"), [(1, 9), (9, 1), (0, 1)])
    def test_there_is_none_that_was_not_made(self, viewer: Client, step: int, number: int) -> None:
        assert viewer.get(attempt_address(make_retried_run(), step, number)).status_code == 404


class TestDownload:
    def test_an_output_of_more_than_a_megabyte_is_cut_and_can_be_downloaded_whole(self, viewer: Client) -> None:
        output = {"text": "word " * 300_000, "after": "the end"}
        run = make_stored_run(make_attempt(1, 1, "failed", output=output))
        address = attempt_address(run, 1, 1)
        part = get_page(viewer, address, headers=HTMX)
        assert len(part) < 1_100_000 and "the end" not in part
        assert f'href="{address}?download"' in part
        answer = viewer.get(f"{address}?download")
        assert json.loads(answer.content) == output
        name = f"run-{run.pk}-step-1-attempt-1-output.json"
        assert answer["Content-Disposition"] == f'attachment; filename="{name}"'

    def test_the_input_of_a_run_is_that_of_step_zero(self, viewer: Client) -> None:
        run = make_retried_run()
        address = f"{attempt_address(run, 0, 1)}?download"
        assert f'href="{address}"' in get_page(viewer, run_address(run))
        assert viewer.get(address).json() == {"topic": "tea"}

    def test_there_is_nothing_to_download_of_an_attempt_that_brought_nothing(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        for step in (1, 2, 3):
            assert viewer.get(f"{attempt_address(run, step, 1)}?download").status_code == 404


class TestChanges:
    @pytest.fixture
    def run(self) -> Run:
        """Three attempts. The second brought nothing; the others differ in a value and in the order of keys."""
        issue = make_issue("high", "Too dear.", path="/total")
        return make_stored_run(
            make_attempt(1, 1, "failed", output={"name": "tea", "total": 12}),
            make_attempt(1, 2, "errored"),
            make_attempt(1, 3, "failed", output={"total": 9, "name": "tea"}, issues=(issue,)),
            make_attempt(2, 1),
        )

    def test_an_output_is_compared_with_the_one_before_it_if_that_is_asked_for(self, viewer: Client, run: Run) -> None:
        assert "<del>" not in get_page(viewer, run_address(run))
        page = get_page(viewer, f"{run_address(run)}?diff=s1a3")
        assert "Since attempt 1 : ~ 1 changed {" in read_words(page)
        assert "<del>12</del> → <ins>9</ins>" in page
        assert 'id="s1a3-l2" data-marks="high"><a class="line-link" href="#s1a3-i0"' in page
        part = get_page(viewer, f"{attempt_address(run, 1, 3)}?diff=s1a3", headers=HTMX)
        assert "<del>12</del> → <ins>9</ins>" in part

    @pytest.mark.parametrize(
        "named",
        ["nonsense", "s1a1", "s9a9", ",".join(f"s1a{n}" for n in range(1, 12)), "<script>alert(1)</script>\u202e"],
        ids=["nonsense", "nothing before", "no such", "too many", "hostile"],
    )
    def test_what_can_not_be_compared_gets_a_sentence(self, viewer: Client, run: Run, named: str) -> None:
        page = get_page(viewer, f"{run_address(run)}?diff={named}")
        assert "message-warning" in page
        assert "<script>alert" not in page and "\u202e" not in page


class TestStrip:
    def test_each_attempt_has_a_chip_with_its_outcome(self, viewer: Client) -> None:
        issues = (make_issue("critical"), make_issue("low"), make_issue("low"))
        attempts = [make_attempt(1, 1, "errored"), make_attempt(1, 2, "failed", issues=issues), make_attempt(1, 3)]
        run = make_stored_run(*attempts, status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        page = get_page(viewer, run_address(run))
        chips = re.findall(r'<a class="strip-chip tone-(\w+)" id="\w+-chip" href="#(s\d+a\d+)"', page)
        assert chips == [("errored", "s1a1"), ("failed", "s1a2"), ("passed", "s1a3"), ("running", "s2a1")]
        assert 'aria-label="Attempt 2: Failed, 1 critical, 2 low"' in page


def make_openable(id: str, *, is_latest: bool = False, issues: int = 0, stored_bytes: int = 100) -> Openable:
    return Openable(id, is_latest, issues, stored_bytes)


class TestOpenAttempts:
    def test_the_latest_the_blocking_one_and_those_with_issues_are_open(self) -> None:
        attempts = [
            make_openable("s1a1", issues=1),
            make_openable("s1a2"),
            make_openable("s1a3"),
            make_openable("s1a4", is_latest=True),
        ]
        chosen = choose_open(attempts, blocking="s1a2")
        assert chosen.open == chosen.loaded == {"s1a1", "s1a2", "s1a4"}

    def test_a_latest_attempt_too_large_for_the_page_is_open_and_loaded_later(self) -> None:
        chosen = choose_open([make_openable("s1a1", is_latest=True, stored_bytes=ROOM)])
        assert (chosen.open, chosen.loaded) == ({"s1a1"}, set())

    def test_what_was_asked_for_comes_first(self) -> None:
        half = {"stored_bytes": ROOM // 2}
        chosen = choose_open(
            [make_openable("s1a1", **half), make_openable("s1a2", is_latest=True, **half)], asked={"s1a1"}
        )
        assert (chosen.open, chosen.loaded) == ({"s1a1", "s1a2"}, {"s1a1"})

    def test_two_hundred_long_outputs_make_a_page_of_bounded_size(self, viewer: Client) -> None:
        steps, attempts = range(1, 21), range(1, 11)
        output = {"rows": [{"id": n, "text": "a line of an output " * 3} for n in range(550)]}
        issues = (make_issue("high", path="/rows/9/text"),)
        run = make_stored_run(
            *(make_attempt(s, n, "failed", output=output, issues=issues) for s in steps for n in attempts),
            spec=make_page_flow(*(make_step(step, max_retries=9) for step in steps)),
            status=RunStatus.FAILED,
            blocking_step=3,
            blocking_attempt=10,
        )
        assert count_queries(viewer, run_address(run)) == 7
        page = get_page(viewer, run_address(run))
        assert len(page) < 1_500_000 and page.count('class="line"') < 8_000
        found = find_attempts(page)
        assert len(found) == 200
        assert [id for id, how in found.items() if how == "open"] == ["s3a10", "s19a10", "s20a10"]
        assert [id for id, how in found.items() if how != "closed"] == [f"s{step}a10" for step in steps]


def make_quoting_run(*, count: int = 5, **fields: Any) -> Run:
    """A run whose audit and whose end quote what a model wrote."""
    issues = tuple(make_issue("high", LONG, audit="Quotes", path=f"/{place}", **fields) for place in range(count))
    return make_stored_run(
        make_attempt(1, 1, "failed", issues=issues, failure_reason=LONG),
        status=RunStatus.FAILED,
        blocking_step=1,
        blocking_attempt=1,
        end_sentence=f"Step 1 “Step 1” did not pass in 1 attempt: {LONG}",
    )


class TestLongTexts:
    def test_no_code_of_an_invisible_character_is_cut_in_two(self) -> None:
        assert str(cut_text("x" * LONGEST_TEXT)) == "x" * LONGEST_TEXT
        cut = cut_text("\u202e" * 30, 10)
        assert (str(cut), cut.left_out) == ("\\u202e" * 10 + "…", 20)

    def test_megabytes_that_an_audit_quotes_are_cut_and_it_is_said_where_they_are(self, viewer: Client) -> None:
        run = make_quoting_run()
        page = get_page(viewer, run_address(run))
        assert len(page) < 200_000
        # Five descriptions and the reason of the attempt.
        assert read_words(page).count(MORE) == 6
        address = f"{run_address(run)}steps/1/attempts/1.json"
        assert f'<a href="{address}">the JSON of the attempt</a>' in page
        attempt: Any = viewer.get(address).json()
        assert attempt["failure_reason"] == LONG
        assert [issue["description"] for issue in attempt["issues"]] == [LONG] * 5
        verdict = page.partition('<p class="verdict">')[2].partition("</p>")[0]
        assert len(verdict) < 5_000 and f'<a href="/runs/{run.pk}.json">the JSON of the run</a>' in verdict
        assert viewer.get(f"/runs/{run.pk}.json").json()["end_sentence"] == run.end_sentence

    def test_overview_and_comparison_cut_them_too(self, viewer: Client) -> None:
        left, right = make_quoting_run(), make_quoting_run()
        page = get_page(viewer, "/")
        assert len(page) < 60_000 and read_words(page).count("in 1 attempt: <word> <word>") == 2
        page = get_page(viewer, f"/runs/compare/?a={left.pk}&b={right.pk}")
        assert len(page) < 200_000 and read_words(page).count(MORE) == 10

    def test_suggestions_and_what_an_audit_adds_are_cut_too(self, viewer: Client) -> None:
        suggestions = ("Write " + LONG,) * (MOST_SUGGESTIONS + 3)
        run = make_quoting_run(count=1, suggestions=suggestions, context={"rows": [LONG] * 5}, vendor=LONG)
        page = get_page(viewer, attempt_address(run, 1, 1))
        assert len(page) < 200_000
        assert read_words(page).count("Write <word>") == MOST_SUGGESTIONS
        assert "and 3 suggestions more" in read_words(page)

    def test_attempts_with_much_to_read_are_loaded_once_somebody_opens_them(self, viewer: Client) -> None:
        def make_failed(number: int, description: str) -> Attempt:
            issues = tuple(make_issue("high", description, path=f"/{place}") for place in range(25))
            return make_attempt(1, number, "failed", issues=issues)

        run = make_stored_run(*(make_failed(number, LONG) for number in range(1, 11)))
        page = get_page(viewer, run_address(run))
        assert len(page) < 400_000
        assert [id for id, how in find_attempts(page).items() if how == "open"] == ["s1a9", "s1a10"]
