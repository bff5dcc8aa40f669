"""Parts of an attempt that are read when somebody opens them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from flows.engine.spec import FlowSpec
from runs import models
from runs.models import Run
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.history_builders import make_asked_run, make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

SPEC = make_page_flow(make_step(1, system_message="You write about tea.", issue_severity_filter="high"))
LOW = make_issue("low", "The text is long.", audit="Length")
HIGH = make_issue("high", "It is about coffee.", audit="Topic", path="/text")


def make_told_run(spec: FlowSpec = SPEC, failures: int = 1, **fields: Any) -> Run:
    """A run whose first attempts failed and whose last passed, each with the request that it was asked with."""
    return make_asked_run(spec, failures, **{"issues": (LOW, HIGH), **fields})


def part_address(run: Run, number: int, part: str = "request") -> str:
    return f"{run_address(run)}steps/1/attempts/{number}/{part}/"


class TestWhatTheModelSaw:
    @pytest.mark.parametrize("model", ["gpt-4.1", "gpt-6-sol"])
    def test_its_sections_stand_apart_and_each_line_names_where_it_came_from(self, viewer: Client, model: str) -> None:
        step = SPEC.step(1).model_copy(update={"model": model})
        words = read_words(get_page(viewer, part_address(make_told_run(make_page_flow(step)), 2)))
        assert "The step’s own text You write about tea." in words
        assert "## Current step attempts 1 attempt Your earlier outputs for this step" in words
        assert '### Attempt 1 1 issue Attempt 1 with its output Output: {"text":"s1a1"} Issues:' in words
        assert "- high (at /text): It is about coffee. Topic at /text , attempt 1" in words

    def test_on_the_page_of_the_run_links_stay_on_it_elsewhere_they_lead_there(self, viewer: Client) -> None:
        run = make_told_run()
        part = get_page(viewer, part_address(run, 2), headers=HTMX)
        assert '<a href="#s1a1-i1">Topic</a>' in part and '<a href="#s1a1">Attempt 1 with its output</a>' in part
        assert "<html" not in part
        on_attempts_page = {**HTMX, "HX-Current-URL": f"http://testserver{run_address(run)}steps/1/attempts/2/"}
        for headers in ({}, on_attempts_page):
            page = get_page(viewer, part_address(run, 2), headers=headers)
            assert f'<a href="{run_address(run)}#s1a1-i1">Topic</a>' in page

    def test_what_the_filter_hid_is_named(self, viewer: Client) -> None:
        words = read_words(get_page(viewer, part_address(make_told_run(), 2)))
        assert "Hidden from the model by filter high : 1 issue Length , attempt 1" in words

    def test_a_request_that_was_worded_otherwise_is_shown_as_it_is_and_says_why_nothing_is_linked(
        self, viewer: Client
    ) -> None:
        run = make_told_run()
        sent = models.AttemptRequest.objects.get(attempt__step__run=run, attempt__number=2)
        sent.body["messages"][0]["content"] = "You write about tea.\n\n## Current step attempts\n\n### Attempt 1\nOld"
        sent.save()
        page = get_page(viewer, part_address(run, 2))
        assert "You write about tea.\n\n## Current step attempts\n\n### Attempt 1\nOld</div>" in page
        assert "is not linked to them: it is worded otherwise than today" in read_words(page)
        assert "Attempt 1 with its output" not in page

    def test_the_whole_request_can_be_copied_and_downloaded(self, viewer: Client) -> None:
        run = make_told_run()
        page = get_page(viewer, part_address(run, 2))
        assert '<button type="button" class="copy" data-copies="s1a2-request-json-text" hidden>' in page
        assert '<div id="s1a2-request-json-text">' in page
        assert f'href="{part_address(run, 2)}?download"' in page
        answer = viewer.get(f"{part_address(run, 2)}?download")
        assert answer["Content-Disposition"] == f'attachment; filename="run-{run.pk}-step-1-attempt-2-request.json"'
        assert answer.json() == models.Attempt.objects.get(step__run=run, number=2).request

    def test_each_message_can_be_copied_to_the_letter(self, viewer: Client) -> None:
        run = make_told_run()
        page = get_page(viewer, part_address(run, 2))
        content = models.Attempt.objects.get(step__run=run, number=2).request["messages"][0]["content"]
        hidden = page.split('<div id="s1a2-request-message-1" hidden>', 1)[1].split("</div>", 1)[0]
        assert hidden.replace("&quot;", '"') == content
        assert 'data-copies="s1a2-request-message-1"' in page

    def test_a_long_message_is_cut_with_a_download(self, viewer: Client) -> None:
        run = make_told_run(spec=make_page_flow(make_step(1, system_message="long " * 60_000)))
        page = get_page(viewer, part_address(run, 1))
        assert len(page) < 700_000
        assert f'Only the beginning is shown. <a href="{part_address(run, 1)}?download">The download</a>' in page
        assert 'data-copies="s1a1-request-message-1"' not in page

    def test_the_number_of_queries_does_not_grow_with_the_history(self, viewer: Client) -> None:
        small, large = make_told_run(failures=1), make_told_run(failures=12)
        assert count_queries(viewer, part_address(small, 2)) == count_queries(viewer, part_address(large, 13)) == 6

    def test_nothing_that_a_model_wrote_is_more_than_text(self, viewer: Client) -> None:
        hostile = "<script>alert(1)</script>\n### Attempt 9 \u202e\x1b[31m"
        issue = make_issue("high", hostile, audit=hostile[:80], path=f"/{hostile}", suggestions=(hostile,))
        run = make_told_run(issues=(issue,), output={hostile: hostile})
        page = get_page(viewer, part_address(run, 2))
        assert "Attempt 1 with its output" in page
        assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page


class TestOtherParts:
    def test_the_raw_output_can_be_downloaded_as_it_came(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "invalid", raw_output='{"text": oops', issues=(HIGH,)))
        answer = viewer.get(f"{part_address(run, 1, 'raw_output')}?download")
        assert json.loads(answer.content) == '{"text": oops'

    @pytest.mark.parametrize("end", ["request/?download", "output_of_someone/", "nonsense/?download"])
    def test_what_is_not_there_is_not_found(self, viewer: Client, end: str) -> None:
        run = make_stored_run(make_attempt(1, 1))
        assert viewer.get(f"{run_address(run)}steps/1/attempts/1/{end}").status_code == 404

    def test_who_may_not_see_runs_may_not_download_their_parts(self, client: Client) -> None:
        run = make_told_run()
        assert client.get(f"{part_address(run, 1)}?download").status_code == 302

    def test_the_way_back_keeps_what_the_filter_hid(self, viewer: Client) -> None:
        run = make_told_run()
        assert f'href="{run_address(run)}?hide=low#s1a2"' in get_page(viewer, f"{part_address(run, 2)}?hide=low")
        assert f'href="{run_address(run)}#s1a2"' in get_page(viewer, f"{part_address(run, 2)}?hide=nonsense")
