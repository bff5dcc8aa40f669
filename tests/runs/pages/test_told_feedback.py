"""What the page of a run says about what its model was told, and what was kept from it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.test import Client

from flows.engine.history import Attempt
from flows.engine.prompt import CURRENT_STEP_HEADING, build_system_message
from flows.engine.spec import FlowSpec
from runs import models
from runs.models import Run
from runs.pages.told_feedback import ToldFeedback, find_told_feedback
from runs.stored_history import build_issues
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_stored_run
from tests.runs.pages.reading import get_page, read_words, run_address

LOW, MEDIUM, HIGH = (
    make_issue(severity, audit=f"{severity.capitalize()} audit") for severity in ("low", "medium", "high")
)


def find(spec: FlowSpec, step: int, *attempts: Attempt) -> dict[int, ToldFeedback]:
    """Ask about attempts that are not stored."""
    keys = itertools.count(1)
    rows, issues = [], {}
    for attempt in attempts:
        parent = models.Step(index=attempt.step, name="")
        row = models.Attempt(pk=next(keys), step=parent, number=attempt.number, outcome=attempt.outcome.value)
        rows.append(row)
        issues[row.pk] = build_issues(row, attempt.issues)
    return find_told_feedback(spec, step, rows, issues)


class TestHidden:
    def test_what_is_below_the_filter_is_hidden_from_every_later_attempt(self) -> None:
        told = find(
            make_flow(make_step(1, issue_severity_filter="high")),
            1,
            make_attempt(1, 1, "failed", issues=(LOW, HIGH)),
            make_attempt(1, 2, "failed", issues=(MEDIUM, HIGH)),
            make_attempt(1, 3),
        )
        assert [(told[n].told, told[n].hidden) for n in (1, 2, 3)] == [(0, 0), (1, 1), (2, 2)]
        assert [(link.address, link.title) for link in told[3].hidden_issues] == [
            ("#s1a1-i0", "Low audit"),
            ("#s1a2-i0", "Medium audit"),
        ]

    def test_of_earlier_steps_only_those_count_that_the_step_is_shown(self) -> None:
        flow = make_flow(make_step(1), make_step(2), make_step(3, include_results=[1]))
        attempts = (make_attempt(1, 1, issues=(LOW,)), make_attempt(2, 1, issues=(LOW, LOW)), make_attempt(3, 1))
        assert find(flow, 3, *attempts)[1].hidden == 1
        assert find(flow, 2, *attempts)[1].hidden == 0

    def test_local_steps_tell_nobody_anything(self) -> None:
        flow = make_flow(make_step(1, compute="{'n': 1}"))
        assert find(flow, 1, make_attempt(1, 1, "failed"), make_attempt(1, 2)) == {}


class TestBlindRetry:
    FLOW = make_flow(make_step(1, issue_severity_filter="high"))

    @pytest.mark.parametrize("outcome", ["failed", "invalid"])
    def test_a_retry_that_was_told_nothing_of_what_it_retries_is_blind(self, outcome: str) -> None:
        told = find(self.FLOW, 1, make_attempt(1, 1, outcome, issues=(LOW, MEDIUM)), make_attempt(1, 2))
        blind = told[2].blind_retry
        assert blind is not None and not told[1].is_blind
        assert (blind.linked, blind.anchor) == ("attempt 1", "s1a1")
        assert blind.reason == "Both of its issues are below the step’s severity filter, high."
        assert blind.advice == "Lower the filter to medium, or raise the severity of “Medium audit”."

    def test_a_retry_that_was_told_of_one_issue_is_not(self) -> None:
        told = find(self.FLOW, 1, make_attempt(1, 1, "failed", issues=(LOW, HIGH)), make_attempt(1, 2))
        assert not told[2].is_blind

    def test_a_failure_without_any_issue_asks_for_an_audit_that_says_why(self) -> None:
        blind = find(self.FLOW, 1, make_attempt(1, 1, "failed", issues=()), make_attempt(1, 2))[2].blind_retry
        assert blind is not None
        assert blind.reason == "It did not pass, and there was no issue that could have been told."
        assert blind.advice == "Let an audit raise an issue that says what to mend."

    @pytest.mark.parametrize("outcome", ["errored", "interrupted"])
    def test_what_brought_no_output_leaves_nothing_to_tell(self, outcome: str) -> None:
        told = find(self.FLOW, 1, make_attempt(1, 1, outcome), make_attempt(1, 2))
        assert not told[2].is_blind
        told = find(self.FLOW, 1, make_attempt(1, 1, "failed", issues=(LOW,)), make_attempt(1, 2, outcome))
        assert not told[2].is_blind

    def test_a_failure_of_the_provider_in_between_changes_nothing(self) -> None:
        attempts = (make_attempt(1, 1, "failed", issues=(LOW,)), make_attempt(1, 2, "errored"), make_attempt(1, 3))
        blind = find(self.FLOW, 1, *attempts)[3].blind_retry
        assert blind is not None and blind.linked == "attempt 1"

    @pytest.mark.parametrize("minimum", ["low", "medium", "high", "critical"])
    @pytest.mark.parametrize("issues", [(), (LOW,), (MEDIUM, HIGH)])
    def test_the_page_says_blind_just_when_the_prompt_tells_nothing(
        self, minimum: str, issues: tuple[Any, ...]
    ) -> None:
        flow = make_flow(make_step(1, issue_severity_filter=minimum))
        failed = make_attempt(1, 1, "failed", issues=issues)
        message = build_system_message(flow, make_history(failed), 1)
        assert find(flow, 1, failed, make_attempt(1, 2))[2].is_blind == (CURRENT_STEP_HEADING not in message)


@pytest.mark.django_db
@pytest.mark.any_database
class TestOnThePage:
    def run(self) -> Run:
        spec = make_page_flow(make_step(1, issue_severity_filter="high"))
        attempts = (make_attempt(1, 1, "failed", issues=(LOW, MEDIUM)), make_attempt(1, 2))
        return make_stored_run(*attempts, spec=spec)

    def test_a_blind_retry_says_so_and_what_to_do(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(self.run()))
        second = page[page.index('id="s1a2"') :]
        assert (
            "Blind retry: the model was told nothing of attempt 1 . Both of its issues are below the step’s severity "
            "filter, high. Lower the filter to medium, or raise the severity of “Medium audit”."
        ) in read_words(second)
        assert "Blind retry" not in page[: page.index('id="s1a2"')]

    def test_what_the_filter_hid_is_named_and_linked(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(self.run()))
        assert (
            "Hidden from the model by filter high : 2 issues Low audit , attempt 1 Medium audit , attempt 1"
        ) in read_words(page)
        assert '<li class="linked-issue" data-severity="low">' in page
        assert '<a href="#s1a1-i0">Low audit</a>' in page

    def test_an_attempt_that_runs_is_called_blind_already(self, viewer: Client) -> None:
        spec = make_page_flow(make_step(1, issue_severity_filter="high"))
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(LOW,)), spec=spec, status="running")
        begin_attempt(run, 1, 2)
        assert "Its only issue is below the step’s severity filter, high." in read_words(
            get_page(viewer, run_address(run))
        )
