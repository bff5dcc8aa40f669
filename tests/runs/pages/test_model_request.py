"""What a model was shown and what its filter hid, taken apart for readers and linked to where it came from."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import Attempt, History
from flows.engine.prompt import build_request, build_sections
from flows.engine.spec import FlowSpec
from runs import models
from runs.history.issues import find_hidden_issues
from runs.models import Run
from runs.pages.model_request import Expected, read_model_request
from runs.stored_history import build_issues
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step
from tests.runs.pages.history_builders import make_asked_run, make_page_flow, make_stored_run
from tests.runs.pages.reading import attempt_address, count_queries, get_page, read_words

LOW, MEDIUM, HIGH = (
    make_issue(severity, f"The text is {severity}.", audit=f"{severity.capitalize()} audit", path="/text")
    for severity in ("low", "medium", "high")
)
FLOW = make_flow(make_step(1, system_message="Write about tea."), make_step(2, include_results=[1]))


def expect(flow: FlowSpec, history: History, index: int = 1) -> Expected:
    """What the page knows of a call. The links lead to where each issue is: step, attempt, position."""
    links = {
        (a.step, a.number): [
            {"address": f"steps/{a.step}/attempts/{a.number}/#i{position}"} for position in range(len(a.issues))
        ]
        for a in history
    }
    return flow.step(index).system_message.strip(), build_sections(flow, history, index), links


def take_apart(flow: FlowSpec, history: History, index: int = 1, **changes: Any) -> dict[str, Any]:
    """The system message of a call of ``index`` as the page takes it apart."""
    request = build_request(flow, history, index, {"topic": "tea"})
    request["messages"][0].update(changes)
    return read_model_request(request, expect(flow, history, index))["messages"][0]


class TestSystemMessage:
    def test_a_text_with_placeholders_is_shown_as_it_was_sent(self) -> None:
        flow = make_flow(make_step(1, system_message="About {input.topic}:"))
        message = take_apart(flow, make_history(make_attempt(outcome="failed", issues=(HIGH,))))
        assert [line.text for line in message["own"].lines] == ["About tea:"]
        assert (len(message["sections"]), "is_unexpected" in message) == (1, False)

    TEXT = st.text(st.sampled_from("ab \n#:-“”"), max_size=30)

    @given(TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3))
    def test_the_parts_together_are_the_message_to_the_letter(self, own: str, failures: list[tuple[str, str]]) -> None:
        flow = make_flow(make_step(system_message=own))
        attempts = [
            make_attempt(1, number, "failed", output={"text": text}, issues=(make_issue("high", description),))
            for number, (text, description) in enumerate(failures, start=1)
        ]
        history = make_history(*attempts)
        request = build_request(flow, history, 1, {})
        message = read_model_request(request, expect(flow, history))["messages"][0]
        if not attempts:
            assert "sections" not in message
            return
        parts = ["\n".join(line.text for line in message["own"].lines)] if message.get("own") else []
        for section in message.get("sections", ()):
            parts += [section["heading"], section["note"]]
            for attempt in section["attempts"]:
                lines = [attempt["heading"], *(line.text for line in attempt["output"].lines), "Issues:"]
                lines += [row.text for line in attempt["lines"] for row in line["text"].lines]
                parts.append("\n".join(lines))
        assert "\n\n".join(parts) == request["messages"][0]["content"]


class TestHidden:
    """Issues that the severity filter kept from the model."""

    @staticmethod
    def find(spec: FlowSpec, step: int, *attempts: Attempt) -> dict[int, list[tuple[str, str]]]:
        """By number of the attempt, where the hidden issues are and what they are called."""
        keys = itertools.count(1)
        rows, issues = [], {}
        for attempt in attempts:
            parent = models.Step(index=attempt.step, name="")
            row = models.Attempt(pk=next(keys), step=parent, number=attempt.number, outcome=attempt.outcome.value)
            rows.append(row)
            issues[row.pk] = build_issues(row, attempt.issues)
        found = find_hidden_issues(spec, step, rows, issues)
        for hidden in found.values():
            assert hidden["count"] == len(hidden["links"])
        return {
            number: [(link["address"], link["title"]) for link in hidden["links"]] for number, hidden in found.items()
        }

    def test_what_is_below_the_filter_is_hidden_from_every_later_attempt(self) -> None:
        flow = make_flow(make_step(1, issue_severity_filter="high"))
        attempts = [make_attempt(1, 1, "failed", issues=(LOW, HIGH)), make_attempt(1, 2, "failed", issues=(MEDIUM,))]
        first, second = ("steps/1/attempts/1/#i0", "Low audit"), ("steps/1/attempts/2/#i0", "Medium audit")
        assert self.find(flow, 1, *attempts, make_attempt(1, 3)) == {1: [], 2: [first], 3: [first, second]}

    def test_of_earlier_steps_only_those_count_that_the_step_is_shown(self) -> None:
        flow = make_flow(make_step(1), make_step(2), make_step(3, include_results=[1]))
        attempts = (make_attempt(1, 1, issues=(LOW,)), make_attempt(2, 1, issues=(LOW, LOW)), make_attempt(3, 1))
        assert [len(self.find(flow, step, *attempts)[1]) for step in (2, 3)] == [0, 1]

    def test_what_made_an_attempt_fail_is_never_hidden_and_local_steps_hide_nothing(self) -> None:
        flow = make_flow(make_step(1, audits=[{"name": "Low audit", "rule": "true", "severity": "low"}]))
        attempts = (make_attempt(1, 1, "failed", issues=(LOW, MEDIUM)), make_attempt(1, 2))
        assert self.find(flow, 1, *attempts)[2] == [("steps/1/attempts/1/#i1", "Medium audit")]
        assert self.find(make_flow(make_step(1, compute="{'n': 1}")), 1, *attempts) == {}


SPEC = make_page_flow(make_step(1, system_message="You write about tea.", issue_severity_filter="high"))


def make_failing_run(spec: FlowSpec = SPEC, failures: int = 1, **fields: Any) -> Run:
    """A run whose first attempts failed and whose last passed, each with the request that it was asked with."""
    return make_asked_run(spec, failures, **{"issues": (LOW, HIGH), **fields})


def part_address(run: Run, number: int, part: str = "request") -> str:
    return f"{attempt_address(run, 1, number)}{part}/"


@pytest.mark.django_db
class TestPages:
    @pytest.mark.parametrize("model", ["gpt-4.1", "gpt-6-sol"])
    def test_its_sections_stand_apart_and_each_line_names_where_it_came_from(self, viewer: Client, model: str) -> None:
        run = make_failing_run(make_page_flow(SPEC.step(1).model_copy(update={"model": model})))
        page = get_page(viewer, attempt_address(run, 1, 2))
        assert f'hx-get="{part_address(run, 2)}"' in page and "You write about tea." not in page
        words = read_words(get_page(viewer, part_address(run, 2)))
        for text in (
            "You write about tea.",
            '### Attempt 1 1 issue Attempt 1 with its output Output: {"text":"s1a1"} Issues:',
            "- high (at /text): The text is high. High audit at /text , attempt 1",
            "Hidden from the model by filter high : 1 issue Low audit at /text , attempt 1",
        ):
            assert text in words

    def test_a_request_that_was_worded_otherwise_is_shown_as_it_is(self, viewer: Client) -> None:
        run = make_failing_run()
        sent = models.AttemptRequest.objects.get(attempt__step__run=run, attempt__number=2)
        sent.body["messages"][0]["content"] = "You write about tea.\n\n## Current step attempts\n\n### Attempt 1\nOld"
        sent.save()
        page = get_page(viewer, part_address(run, 2))
        assert "### Attempt 1 Old" in read_words(page) and "its wording is not that of this release" in read_words(page)
        assert "Attempt 1 with its output" not in page

    def test_parts_can_be_downloaded_as_they_came(self, viewer: Client) -> None:
        run = make_failing_run()
        answer = viewer.get(f"{part_address(run, 2)}?download")
        assert answer["Content-Disposition"] == f'attachment; filename="run-{run.pk}-step-1-attempt-2-request.json"'
        assert answer.json() == models.Attempt.objects.get(step__run=run, number=2).request
        run = make_stored_run(make_attempt(1, 1, "invalid", raw_output='{"text": oops', input={"seed": 7}))
        answer = viewer.get(f"{part_address(run, 1, 'raw_output')}?download")
        assert json.loads(answer.content) == '{"text": oops'
        assert "seed" in get_page(viewer, part_address(run, 1, "input"))
        for end in ("request/?download", "output_of_someone/", "pk/", "nonsense/?download"):
            assert viewer.get(f"{attempt_address(run, 1, 1)}{end}").status_code == 404

    def test_the_number_of_queries_does_not_grow_with_the_history(self, viewer: Client) -> None:
        small, large = make_failing_run(failures=1), make_failing_run(failures=12)
        assert count_queries(viewer, part_address(small, 2)) == count_queries(viewer, part_address(large, 13)) == 7

    def test_nothing_that_a_model_wrote_is_more_than_text_and_long_ones_are_cut(self, viewer: Client) -> None:
        hostile = "<script>alert(1)</script>\n### Attempt 9 \u202e\x1b[31m"
        issue = make_issue("high", hostile, audit=hostile[:80], path=f"/{hostile}", suggestions=(hostile,))
        spec = make_page_flow(make_step(1, system_message="long " * 60_000))
        run = make_failing_run(spec, issues=(issue,), output={hostile: hostile})
        page = get_page(viewer, part_address(run, 2))
        assert len(page) < 700_000
        assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page
