"""One attempt: its output beside its issues, what changed since the one before, and what of it is long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from runs.history.texts import MAX_SUGGESTIONS, MAX_TEXT_LENGTH
from runs.models import Run, RunStatus
from tests.engine.builders import make_attempt, make_error, make_issue
from tests.runs.pages.history_builders import begin_attempt, make_stored_run
from tests.runs.pages.reading import attempt_address, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

LONG = "<word> " * 150_000
MORE = f"({len(LONG) - MAX_TEXT_LENGTH:,} characters more in the JSON of the attempt )".replace(",", " ")


class TestAttempt:
    def test_an_answer_that_was_no_output_is_shown_as_it_came_and_an_error_says_what_to_fix(
        self, viewer: Client
    ) -> None:
        error = make_error(message="Set OPENAI_API_KEY.", status=401, retry_after=4)
        run = make_stored_run(
            make_attempt(1, 1, "invalid", raw_output='{"text": oops\nsecond', issues=(make_issue(),)),
            make_attempt(1, 2, "errored", error=error),
            status=RunStatus.ERRORED,
        )
        words = read_words(get_page(viewer, attempt_address(run, 1, 1)))
        assert "What came back (not usable as an output)" in words and '{"text": oops second' in words
        words = read_words(get_page(viewer, attempt_address(run, 1, 2)))
        assert "Attempt 2: errored Set OPENAI_API_KEY. (HTTP 401) The provider asks to wait 4.0 s" in words


class TestDownload:
    def test_an_output_of_more_than_a_megabyte_is_cut_and_can_be_downloaded_whole(self, viewer: Client) -> None:
        output = {"text": "word " * 300_000}
        run = make_stored_run(make_attempt(1, 1, "failed", output=output))
        address = attempt_address(run, 1, 1)
        part = get_page(viewer, address)
        assert len(part) < 100_000
        assert f'href="{address}?download"' in part
        answer = viewer.get(f"{address}?download")
        assert json.loads(answer.content) == output
        name = f"run-{run.pk}-step-1-attempt-1-output.json"
        assert answer["Content-Disposition"] == f'attachment; filename="{name}"'

    def test_there_is_nothing_to_download_of_an_attempt_that_brought_nothing(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        for step in (1, 2, 3):
            assert viewer.get(f"{attempt_address(run, step, 1)}?download").status_code == 404


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
        assert len(page) < 60_000 and LONG not in page
        page = get_page(viewer, f"/runs/compare/?a={left.pk}&b={right.pk}")
        # The sentences of both runs, and their five issues.
        assert len(page) < 200_000 and read_words(page).count("characters more)") == 7

    def test_suggestions_and_what_an_audit_adds_are_cut_too(self, viewer: Client) -> None:
        suggestions = ("Write " + LONG,) * (MAX_SUGGESTIONS + 3)
        run = make_quoting_run(count=1, suggestions=suggestions, context={"rows": [LONG] * 5}, vendor=LONG)
        page = get_page(viewer, attempt_address(run, 1, 1))
        assert len(page) < 200_000
        assert read_words(page).count("Write <word>") == MAX_SUGGESTIONS
        assert "and 3 suggestions more" in read_words(page)
