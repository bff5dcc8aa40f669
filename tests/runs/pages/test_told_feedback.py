"""What the page of a run says about what its model was shown, and what the filter hid."""

from __future__ import annotations

import itertools

import pytest
from django.test import Client

from flows.engine.history import Attempt
from flows.engine.spec import FlowSpec
from runs import models
from runs.models import Run
from runs.pages.told_feedback import ToldFeedback, find_told_feedback
from runs.stored_history import build_issues
from tests.engine.builders import make_attempt, make_flow, make_issue, make_step
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
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
        assert [told[n].hidden for n in (1, 2, 3)] == [0, 1, 2]
        assert [(link.address, link.title) for link in told[3].hidden_issues] == [
            ("#s1a1-i0", "Low audit"),
            ("#s1a2-i0", "Medium audit"),
        ]

    def test_of_earlier_steps_only_those_count_that_the_step_is_shown(self) -> None:
        flow = make_flow(make_step(1), make_step(2), make_step(3, include_results=[1]))
        attempts = (make_attempt(1, 1, issues=(LOW,)), make_attempt(2, 1, issues=(LOW, LOW)), make_attempt(3, 1))
        assert find(flow, 3, *attempts)[1].hidden == 1
        assert find(flow, 2, *attempts)[1].hidden == 0

    def test_what_made_an_attempt_fail_is_never_hidden(self) -> None:
        flow = make_flow(make_step(1, audits=[{"name": "Low audit", "rule": "true", "severity": "low"}]))
        failed = make_attempt(1, 1, "failed", issues=(LOW, MEDIUM))
        assert [link.title for link in find(flow, 1, failed, make_attempt(1, 2))[2].hidden_issues] == ["Medium audit"]

    def test_local_steps_tell_nobody_anything(self) -> None:
        flow = make_flow(make_step(1, compute="{'n': 1}"))
        assert find(flow, 1, make_attempt(1, 1, "failed"), make_attempt(1, 2)) == {}


@pytest.mark.django_db
class TestOnThePage:
    def run(self) -> Run:
        spec = make_page_flow(make_step(1, issue_severity_filter="high"))
        attempts = (make_attempt(1, 1, "failed", issues=(LOW, MEDIUM)), make_attempt(1, 2))
        return make_stored_run(*attempts, spec=spec)

    def test_what_the_filter_hid_is_named_and_linked(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(self.run()))
        assert (
            "Hidden from the model by filter high : 2 issues Low audit , attempt 1 Medium audit , attempt 1"
        ) in read_words(page)
        assert '<li class="linked-issue" data-severity="low">' in page
        assert '<a href="#s1a1-i0">Low audit</a>' in page
