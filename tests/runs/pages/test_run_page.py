"""The page of one run, as those who open it see it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from runs.models import RunStatus
from tests.engine.builders import make_attempt, make_error, make_issue
from tests.runs.pages.attempt_reading import find_attempts
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import count_queries, get_page, read_table, read_words, run_address

pytestmark = pytest.mark.django_db


class TestRunPage:
    def test_the_first_lines_say_what_happened_and_lead_to_the_blocking_attempt(self, viewer: Client) -> None:
        sentence = "Step 2 “Step 2” did not pass in 2 attempts: too short."
        run = make_stored_run(
            make_attempt(1, 1),
            make_attempt(2, 1, "failed"),
            make_attempt(2, 2, "failed"),
            status=RunStatus.FAILED,
            end_sentence=sentence,
            blocking_step=2,
            blocking_attempt=2,
        )
        page = get_page(viewer, run_address(run))
        assert f"Colour theme #{run.pk} Failed" in read_words(page)
        assert '<a href="#s2a2">Step 2 “Step 2”</a> did not pass in 2 attempts: too short.' in page
        assert '<details class="attempt" id="s2a2" open' in page

    @pytest.mark.parametrize(
        "rest",
        [
            " did not pass in 2 attempts: it said “no”.",
            ", attempt 2: Set OPENAI_API_KEY.",
            " took longer than its time limit of 5 seconds.",
            " would take longer than its time limit of 5 seconds: its next attempt may begin only after that.",
        ],
    )
    def test_a_name_with_quotation_marks_is_linked_whole(self, viewer: Client, rest: str) -> None:
        run = make_stored_run(
            make_attempt(1, 1, "failed"),
            status=RunStatus.FAILED,
            end_sentence=f"Step 1 “Say “tea” twice”{rest}",
            blocking_step=1,
            blocking_attempt=1,
        )
        assert f'<a href="#s1a1">Step 1 “Say “tea” twice”</a>{rest}' in get_page(viewer, run_address(run))

    def test_failed_and_errored_are_told_apart_by_word_and_icon(self, viewer: Client) -> None:
        failed = make_stored_run(make_attempt(1, 1, "failed"), status=RunStatus.FAILED)
        errored = make_stored_run(make_attempt(1, 1, "errored"), status=RunStatus.ERRORED)
        page = get_page(viewer, run_address(failed))
        assert "chip tone-failed" in page and "icon-x-circle" in page and "Errored" not in page
        page = get_page(viewer, run_address(errored))
        assert "chip tone-errored" in page and "icon-bolt-slash" in page and "Failed" not in page

    def test_each_attempt_shows_its_own_output_beside_its_own_issues(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_retried_run()))
        first = page[page.index('id="s1a1"') : page.index('id="s1a2"')]
        second = page[page.index('id="s1a2"') : page.index('id="s2a1"')]
        assert "&quot;red&quot;" in first and "Hex colours" in first and "“red” is no hex colour." in first
        assert "&quot;#00ff00&quot;" in second and "“red” is no hex colour." not in second
        assert "Issues None." in read_words(second)

    def test_any_issue_and_its_output_can_be_read_without_a_click(self, viewer: Client) -> None:
        assert find_attempts(get_page(viewer, run_address(make_retried_run()))) == {
            "s1a1": "open",
            "s1a2": "open",
            "s2a1": "open",
            "s3a1": "open",
        }

    def test_earlier_attempts_without_issues_are_one_line(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), make_attempt(1, 2, "interrupted"), make_attempt(1, 3))
        page = get_page(viewer, run_address(run))
        assert find_attempts(page) == {"s1a1": "closed", "s1a2": "closed", "s1a3": "open"}
        words = read_words(page)
        assert "Attempt 1 Errored 1.0 s 0 in 0 out — Open on a page of its own" in words
        assert "The provider failed (500)." not in words

    def test_a_line_that_an_issue_points_at_is_marked_and_both_lead_to_each_other(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_retried_run()))
        assert '<span class="line" id="s1a1-l4" data-marks="critical"><a class="line-link" href="#s1a1-i0"' in page
        assert '<li class="issue" id="s1a1-i0" data-severity="critical">' in page
        assert '<a class="issue-place mono" href="#s1a1-l4">/colours/1, line 4</a>' in page

    def test_an_issue_about_something_missing_marks_where_it_should_be(self, viewer: Client) -> None:
        issue = make_issue("high", path="/text/deep")
        page = get_page(viewer, run_address(make_stored_run(make_attempt(1, 1, "failed", issues=(issue,)))))
        assert "/text/deep, missing; see line 2" in page

    def test_fields_that_an_audit_added_can_be_read(self, viewer: Client) -> None:
        assert "&quot;vendor_id&quot;</span>: 4711" in get_page(viewer, run_address(make_retried_run()))

    def test_steps_that_have_not_begun_are_listed_as_waiting(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        words = read_words(get_page(viewer, run_address(run)))
        assert "2 Step 2 tool_2 Not begun gpt-4.1, up to 2 attempts" in words
        assert "3 Step 3 Not begun computed here, no model call, up to 4 attempts" in words

    def test_step_zero_is_the_input(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_stored_run()))
        assert "0 Input version 1 of Colour theme" in read_words(page)
        assert '<span class="key">&quot;topic&quot;</span>: &quot;tea&quot;' in page

    @pytest.mark.parametrize(
        ("attempts", "status", "state"),
        [
            ([make_attempt(1, 1, "failed")], RunStatus.RUNNING, "Waiting to retry"),
            ([make_attempt(1, 1, "failed")], RunStatus.CANCELLED, "Cancelled"),
            ([make_attempt(1, 1, "interrupted")], RunStatus.ERRORED, "Interrupted"),
            ([make_attempt(1, 1, "failed"), make_attempt(1, 2, "interrupted")], RunStatus.ERRORED, "Failed"),
            ([make_attempt(1, n, "invalid") for n in range(1, 5)], RunStatus.FAILED, "Failed"),
            ([make_attempt(1, n, "errored") for n in range(1, 5)], RunStatus.ERRORED, "Errored"),
            ([make_attempt(1, 1, "failed"), make_attempt(1, 2)], RunStatus.RUNNING, "Passed"),
        ],
    )
    def test_the_state_of_a_step_is_that_of_the_attempt_that_decides(
        self, viewer: Client, attempts: list[Any], status: str, state: str
    ) -> None:
        words = read_words(get_page(viewer, run_address(make_stored_run(*attempts, status=status))))
        assert f"1 Step 1 tool_1 {state} gpt-4.1," in words

    def test_an_answer_that_was_no_output_is_shown_as_it_came(self, viewer: Client) -> None:
        attempt = make_attempt(1, 1, "invalid", raw_output='{"text": oops\nsecond', issues=(make_issue(),))
        words = read_words(get_page(viewer, run_address(make_stored_run(attempt, status=RunStatus.FAILED))))
        assert "What came back (not usable as an output)" in words
        assert 'Download JSON : the output {"text": oops second' in words

    def test_an_error_says_what_to_mend(self, viewer: Client) -> None:
        attempt = make_attempt(
            1, 1, "errored", error=make_error(message="Set OPENAI_API_KEY.", status=401, retry_after=4)
        )
        words = read_words(get_page(viewer, run_address(make_stored_run(attempt, status=RunStatus.ERRORED))))
        assert "No answer: Set OPENAI_API_KEY. (HTTP 401) The provider asks to wait 4.0 s." in words

    def test_a_run_that_is_being_cancelled_says_so_and_offers_no_second_cancel(self, admin_client: Client) -> None:
        run = make_stored_run(status=RunStatus.RUNNING, cancel_requested=True)
        page = get_page(admin_client, run_address(run))
        assert "Cancelling" in page
        assert 'id="cancel"' not in page

    def test_runs_of_the_simulated_model_say_so(self, viewer: Client) -> None:
        run = make_stored_run(is_simulated=True)
        assert "Simulated model: outputs are invented, nothing is billed." in get_page(viewer, run_address(run))
        run = make_stored_run(is_simulated=False)
        assert "Simulated model" not in get_page(viewer, run_address(run))

    def test_charts_have_a_table_behind_them(self, viewer: Client) -> None:
        words = read_words(get_page(viewer, run_address(make_retried_run())))
        assert (
            "Step Attempt Outcome Waited before Took 1. Step 1 1 Failed — 1.0 s 1. Step 1 2 Passed 1.0 s 1.0 s" in words
        )
        assert "Step Attempt In of these cached Out of these reasoning 1 1 200 0 100 0 1 2 400 0 200 0" in words

    def test_the_chart_says_why_a_step_waited(self, viewer: Client) -> None:
        limited = make_error(message="Slow down.", code="rate_limited", status=429, retry_after=1)
        run = make_stored_run(
            make_attempt(1, 1, "errored", error=limited), make_attempt(1, 2, "interrupted"), make_attempt(1, 3)
        )
        page = get_page(viewer, run_address(run))
        assert [row[3] for row in read_table(page, "Attempts over time")[1:]] == [
            "—",
            "1.0 s, for the provider’s rate limit; the provider asked for 1.0 s",
            "1.0 s, until a worker took over after the interruption",
        ]

    def test_flow_and_version_can_be_reached_by_those_who_may_see_them(
        self, viewer: Client, admin_client: Client
    ) -> None:
        run = make_retried_run()
        version = f'<a href="/admin/flows/flowversion/{run.version_id}/change/">version 1</a>'
        assert version not in get_page(viewer, run_address(run))
        page = get_page(admin_client, run_address(run))
        assert version in page
        assert f'<a href="/flows/{run.flow.name}/">Colour theme</a>' in page

    def test_the_number_of_queries_does_not_grow_with_attempts_and_issues(self, viewer: Client) -> None:
        small = make_retried_run()
        issues = tuple(make_issue(severity) for severity in ("low", "medium", "high"))
        large = make_stored_run(*[make_attempt(1, number, "failed", issues=issues) for number in range(1, 30)])
        assert count_queries(viewer, run_address(small)) == count_queries(viewer, run_address(large)) == 7


HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)"> {{ x }} {% x %} \u202eevil \x1b[31m </details>'


class TestHostileOutput:
    def test_nothing_that_a_model_wrote_is_more_than_text(self, viewer: Client) -> None:
        issue = make_issue(
            "critical",
            HOSTILE,
            code=HOSTILE,
            audit=HOSTILE[:90],
            path=f"/{HOSTILE}",
            suggestions=(HOSTILE,),
            context={HOSTILE: HOSTILE},
        )
        request = {"messages": [{"role": HOSTILE, "content": HOSTILE}], "tools": [HOSTILE]}
        run = make_stored_run(
            make_attempt(1, 1, "failed", output={HOSTILE: [HOSTILE]}, issues=(issue,), failure_reason=HOSTILE),
            make_attempt(1, 2, "invalid", raw_output=HOSTILE, request=request, model=HOSTILE),
            make_attempt(1, 3, "errored", error=make_error(message=HOSTILE)),
            status=RunStatus.FAILED,
            end_sentence=HOSTILE,
        )
        addresses = [
            run_address(run),
            *(f"{run_address(run)}steps/1/attempts/2/{part}/" for part in ("request", "input")),
        ]
        for address in addresses:
            page = get_page(viewer, address)
            assert "<script>alert" not in page
            assert "<img" not in page
            assert "\u202e" not in page and "\x1b" not in page

    def test_htmx_looks_at_nothing_that_a_model_wrote(self, viewer: Client) -> None:
        attempt = make_attempt(
            *(1, 1, "failed"), output={"text": "MODEL"}, issues=(make_issue("low", "MODEL"),), failure_reason="MODEL"
        )
        finder = UnguardedFinder(get_page(viewer, run_address(make_stored_run(attempt, input={"x": "MODEL"}))))
        assert finder.count == 5
        assert finder.unguarded == []


class UnguardedFinder(HTMLParser):
    """Finds where ``MODEL`` stands in a page, and of these places the ones that no ``hx-disable`` is around."""

    VOID = ("meta", "link", "input", "img", "br", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.guards: list[bool] = []
        self.count = 0
        self.unguarded: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.guards.append("hx-disable" in dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            self.guards.pop()

    def handle_data(self, data: str) -> None:
        if "MODEL" in data:
            self.count += 1
            if not any(self.guards):
                self.unguarded.append(data)


class TestSeverityFilter:
    def test_what_the_address_hides_is_hidden_and_its_toggles_say_so(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue("low"), make_issue("high"))))
        page = get_page(viewer, f"{run_address(run)}?hide=low,clean")
        assert '<div class="run" id="run" data-hide="low clean">' in page
        toggles = dict(re.findall(r'data-hides="(\w+)" aria-pressed="(\w+)"', page))
        assert toggles == {"critical": "true", "high": "true", "medium": "true", "low": "false", "clean": "true"}
        assert 'name="hide" value="clean" data-hides="low"' in page
        assert 'name="hide" value="high,low,clean" data-hides="high"' in page

    def test_counts_are_those_of_the_whole_run(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue("low"), make_issue("high"))))
        assert "Critical 0 High 1 Medium 0 Low 1" in read_words(get_page(viewer, run_address(run)))

    def test_an_unknown_severity_gets_a_sentence_and_hides_nothing(self, viewer: Client) -> None:
        page = get_page(viewer, f"{run_address(make_retried_run())}?hide=low,nonsense")
        assert "“nonsense” can’t be hidden; it can be critical, high, medium, low, clean." in page
        assert 'data-hide=""' in page
