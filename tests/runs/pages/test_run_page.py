"""The page of one run, as those who open it see it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from runs.models import RunStatus
from tests.engine.builders import make_attempt, make_error, make_issue
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import (
    attempt_address,
    count_queries,
    find_attempts,
    get_page,
    read_table,
    read_words,
    run_address,
)

pytestmark = pytest.mark.django_db

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)"> {{ x }} {% x %} \u202eevil \x1b[31m </details>'


class TestHead:
    @pytest.mark.parametrize(
        "rest",
        [
            " did not pass in 2 attempts: it said “no”.",
            ", attempt 2: Set OPENAI_API_KEY.",
            " would take longer than its time limit of 5 seconds: its next attempt may begin only after that.",
        ],
    )
    def test_the_first_lines_say_what_happened_and_lead_to_the_blocking_attempt(
        self, viewer: Client, rest: str
    ) -> None:
        run = make_stored_run(
            make_attempt(1, 1),
            make_attempt(2, 1, "failed"),
            make_attempt(2, 2, "failed"),
            status=RunStatus.FAILED,
            end_sentence=f"Step 2 “Say “tea” twice”{rest}",
            blocking_step=2,
            blocking_attempt=2,
        )
        page = get_page(viewer, run_address(run))
        assert f"Colour theme #{run.pk} Failed" in read_words(page) and "chip tone-failed" in page
        assert f'<a href="#s2a2">Step 2 “Say “tea” twice”</a>{rest}' in page
        assert find_attempts(page)["s2a2"] == "open"

    def test_runs_of_the_simulated_model_say_so(self, viewer: Client) -> None:
        pages = [get_page(viewer, run_address(make_stored_run(is_simulated=flag))) for flag in (True, False)]
        assert ["Simulated model" in page for page in pages] == [True, False]

    def test_flow_and_version_can_be_reached_by_those_who_may_see_them(
        self, viewer: Client, admin_client: Client
    ) -> None:
        run = make_retried_run()
        version = f'<a href="/admin/flows/flowversion/{run.version_id}/change/">version 1</a>'
        pages = [get_page(client, run_address(run)) for client in (viewer, admin_client)]
        assert [version in page for page in pages] == [False, True]
        assert f'<a href="/flows/{run.flow.name}/">Colour theme</a>' in pages[0]

    def test_charts_have_a_table_behind_them_that_says_why_a_step_waited(self, viewer: Client) -> None:
        limited = make_error(message="Slow down.", code="rate_limited", status=429, retry_after=1)
        run = make_stored_run(
            make_attempt(1, 1, "errored", error=limited), make_attempt(1, 2, "interrupted"), make_attempt(1, 3)
        )
        page = get_page(viewer, run_address(run))
        limit = "1.0 s, for the provider’s rate limit"
        assert read_table(page, "Attempts over time")[1:] == [
            ["1. Step 1", "1", "Errored", "—", "1.0 s"],
            ["1. Step 1", "2", "Interrupted", f"{limit}; the provider asked for 1.0 s", "1.0 s"],
            ["1. Step 1", "3", "Passed", "1.0 s, until a worker took over after the interruption", "1.0 s"],
        ]
        words = read_words(get_page(viewer, run_address(make_retried_run())))
        assert "Step Attempt In of these cached Out of these reasoning 1 1 200 0 100 0 1 2 400 0 200 0" in words


class TestSteps:
    def test_each_attempt_shows_its_own_output_beside_its_own_issues(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_retried_run()))
        assert set(find_attempts(page).values()) == {"open"}
        first = page[page.index('id="s1a1"') : page.index('id="s1a2"')]
        second = page[page.index('id="s1a2"') : page.index('id="s2a1"')]
        assert "&quot;red&quot;" in first and "“red” is no hex colour." in first
        assert "&quot;vendor_id&quot;</span>: 4711" in first
        assert "&quot;#00ff00&quot;" in second and "“red” is no hex colour." not in second

    def test_earlier_attempts_without_issues_are_one_line(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1, "errored"), make_attempt(1, 2, "interrupted"), make_attempt(1, 3))
        page = get_page(viewer, run_address(run))
        assert find_attempts(page) == {"s1a1": "closed", "s1a2": "closed", "s1a3": "open"}
        assert "Attempt 1 Errored 1.0 s 0 in 0 out —" in read_words(page)

    def test_an_issue_and_the_line_that_it_points_at_lead_to_each_other(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_retried_run()))
        assert '<span class="line" id="s1a1-l4" data-marks="critical"><a class="line-link" href="#s1a1-i0"' in page
        assert '<li class="issue" id="s1a1-i0" data-severity="critical">' in page
        assert '<a class="issue-place mono" href="#s1a1-l4">/colours/1, line 4</a>' in page
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue("high", path="/text/deep"),)))
        assert "/text/deep, missing; see line 2" in get_page(viewer, run_address(run))

    def test_steps_that_have_not_begun_are_listed_as_waiting_and_step_zero_is_the_input(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        page = get_page(viewer, run_address(run))
        words = read_words(page)
        assert "0 Input version 1 of Colour theme" in words
        assert "2 Step 2 tool_2 Not begun gpt-4.1, up to 2 attempts" in words
        assert "3 Step 3 Not begun computed here, no model call, up to 4 attempts" in words
        assert '<span class="key">&quot;topic&quot;</span>: &quot;tea&quot;' in page

    @pytest.mark.parametrize(
        ("outcomes", "status", "state"),
        [
            (["failed"], RunStatus.RUNNING, "Waiting to retry"),
            (["failed"], RunStatus.CANCELLED, "Cancelled"),
            (["interrupted"], RunStatus.ERRORED, "Interrupted"),
            (["failed", "interrupted"], RunStatus.ERRORED, "Failed"),
            (["invalid"] * 4, RunStatus.FAILED, "Failed"),
            (["errored"] * 4, RunStatus.ERRORED, "Errored"),
            (["failed", "passed"], RunStatus.RUNNING, "Passed"),
        ],
    )
    def test_the_state_of_a_step_is_that_of_the_attempt_that_decides(
        self, viewer: Client, outcomes: list[str], status: str, state: str
    ) -> None:
        attempts = [make_attempt(1, number, outcome) for number, outcome in enumerate(outcomes, start=1)]
        words = read_words(get_page(viewer, run_address(make_stored_run(*attempts, status=status))))
        assert f"1 Step 1 tool_1 {state} gpt-4.1," in words

    def test_an_answer_that_was_no_output_is_shown_as_it_came_and_an_error_says_what_to_mend(
        self, viewer: Client
    ) -> None:
        error = make_error(message="Set OPENAI_API_KEY.", status=401, retry_after=4)
        attempts = [
            make_attempt(1, 1, "invalid", raw_output='{"text": oops\nsecond', issues=(make_issue(),)),
            make_attempt(1, 2, "errored", error=error),
        ]
        words = read_words(get_page(viewer, run_address(make_stored_run(*attempts, status=RunStatus.ERRORED))))
        assert "What came back (not usable as an output)" in words and '{"text": oops second' in words
        assert "No answer: Set OPENAI_API_KEY. (HTTP 401) The provider asks to wait 4.0 s." in words

    def test_the_number_of_queries_does_not_grow_with_attempts_and_issues(self, viewer: Client) -> None:
        small = make_retried_run()
        issues = tuple(make_issue(severity) for severity in ("low", "medium", "high"))
        large = make_stored_run(*[make_attempt(1, number, "failed", issues=issues) for number in range(1, 30)])
        assert count_queries(viewer, run_address(small)) == count_queries(viewer, run_address(large)) == 7


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


class TestHostileOutput:
    def test_nothing_that_a_model_wrote_is_more_than_text(self, viewer: Client) -> None:
        texts: dict[str, Any] = {"code": HOSTILE, "audit": HOSTILE[:90], "suggestions": (HOSTILE,)}
        issue = make_issue("critical", HOSTILE, path=f"/{HOSTILE}", context={HOSTILE: HOSTILE}, **texts)
        request = {"messages": [{"role": HOSTILE, "content": HOSTILE}], "tools": [HOSTILE]}
        run = make_stored_run(
            make_attempt(1, 1, "failed", output={HOSTILE: [HOSTILE]}, issues=(issue,), failure_reason=HOSTILE),
            make_attempt(1, 2, "invalid", raw_output=HOSTILE, request=request, model=HOSTILE),
            make_attempt(1, 3, "errored", error=make_error(message=HOSTILE)),
            status=RunStatus.FAILED,
            end_sentence=HOSTILE,
        )
        parts = (f"{attempt_address(run, 1, 2)}{part}/" for part in ("request", "input"))
        for address in (run_address(run), *parts):
            page = get_page(viewer, address)
            for text in ("<script>alert", "<img", "\u202e", "\x1b"):
                assert text not in page

    def test_htmx_looks_at_nothing_that_a_model_wrote(self, viewer: Client) -> None:
        texts: dict[str, Any] = {"issues": (make_issue("low", "MODEL"),), "failure_reason": "MODEL"}
        run = make_stored_run(make_attempt(1, 1, "failed", output={"text": "MODEL"}, **texts), input={"x": "MODEL"})
        finder = UnguardedFinder(get_page(viewer, run_address(run)))
        assert (finder.count, finder.unguarded) == (5, [])


def test_what_the_address_hides_is_hidden_and_its_toggles_say_so(viewer: Client) -> None:
    run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue("low"), make_issue("high"))))
    page = get_page(viewer, f"{run_address(run)}?hide=low,clean")
    assert '<div class="run" id="run" data-hide="low clean">' in page
    toggles = dict(re.findall(r'data-hides="(\w+)" aria-pressed="(\w+)"', page))
    assert toggles == {"critical": "true", "high": "true", "medium": "true", "low": "false", "clean": "true"}
    assert 'name="hide" value="clean" data-hides="low"' in page
    assert "Critical 0 High 1 Medium 0 Low 1" in read_words(page)
    page = get_page(viewer, f"{run_address(run)}?hide=low,nonsense")
    assert "message-warning" in page and 'data-hide=""' in page
