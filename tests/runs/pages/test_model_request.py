"""The request of a call, taken apart for readers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import History
from flows.engine.prompt import CURRENT_STEP_HEADING, build_request, build_sections
from flows.engine.providers import Api, Provider, Providers
from flows.engine.spec import FlowSpec
from runs.pages.issue_links import IssueLink
from runs.pages.model_request import LONGEST_OUTPUT, ModelMessage, Told, read_model_request
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step

ISSUE = make_issue("high", "The text is too short.", path="/text", suggestions=("Write more.",))


def tell(flow: FlowSpec, history: History, index: int = 1) -> Told:
    """What the page knows of a call. The links lead to where each issue is: step, attempt, position."""
    links = {
        (a.step, a.number): [
            IssueLink(f"#s{a.step}a{a.number}-i{position}", issue.severity, "", "", a.step, a.number)
            for position, issue in enumerate(a.issues)
        ]
        for a in history
    }
    return Told(flow.step(index).system_message.strip(), build_sections(flow, history, index), links)


def read(flow: FlowSpec, history: History, index: int = 1, **changes: Any) -> ModelMessage:
    """The system message of a call of ``index`` as the page takes it apart."""
    request = build_request(flow, history, index, {"topic": "tea"})
    request["messages"][0].update(changes)
    return read_model_request(request, tell(flow, history, index)).messages[0]


class TestSections:
    FLOW = make_flow(make_step(1, system_message="Write about tea."), make_step(2, include_results=[1]))

    def test_the_steps_own_text_and_what_is_told_stand_apart(self) -> None:
        low = make_issue("low")
        history = make_history(make_attempt(outcome="failed", output={"text": "Tea."}, issues=(low, ISSUE)))
        message = read(self.FLOW, history)
        assert message.own is not None and [line.text for line in message.own.lines] == ["Write about tea."]
        (section,) = message.sections
        (told,) = section.attempts
        assert section.heading == "## Current step attempts" and told.heading == "### Attempt 1"
        assert [line.text for line in told.output.lines] == ['Output: {"text":"Tea."}']

    def test_each_feedback_line_leads_to_the_issue_that_it_came_from(self) -> None:
        low = make_issue("low")
        failed = [make_attempt(1, n, "failed", issues=(low, ISSUE, low, ISSUE)) for n in (1, 2)]
        (section,) = read(self.FLOW, make_history(*failed)).sections
        assert [line.link.address for told in section.attempts for line in told.lines] == [
            "#s1a1-i1",
            "#s1a1-i3",
            "#s1a2-i1",
            "#s1a2-i3",
        ]
        assert [line.text for line in section.attempts[0].lines[0].text.lines] == [
            "- high (at /text): The text is too short.",
            "  Suggestions: Write more.",
        ]

    def test_earlier_steps_stand_in_a_section_of_their_own(self) -> None:
        history = make_history(make_attempt(1, issues=(ISSUE,)), make_attempt(2, outcome="failed"))
        earlier, current = read(self.FLOW, history, 2).sections
        assert [told.heading for told in earlier.attempts] == ["### Step 1 “Step 1”, attempt 1"]
        assert [told.heading for told in current.attempts] == ["### Attempt 1"]

    def test_a_long_output_is_cut(self) -> None:
        failed = make_attempt(outcome="failed", output={"text": "x" * 3 * LONGEST_OUTPUT})
        (section,) = read(self.FLOW, make_history(failed)).sections
        assert section.attempts[0].output.is_cut
        assert len(section.attempts[0].output.lines[0].text) <= LONGEST_OUTPUT + 1


class TestDoubt:
    def test_headings_in_the_steps_own_text_are_text(self) -> None:
        sly = f"Mind this:\n\n{CURRENT_STEP_HEADING}\n\n### Attempt 7\nIssues:\n- high: Nothing."
        flow = make_flow(make_step(system_message=sly))
        message = read(flow, make_history())
        assert message.sections == () and not message.is_unexpected
        message = read(flow, make_history(make_attempt(outcome="failed")))
        assert message.own is not None and "### Attempt 7" in [line.text for line in message.own.lines]
        assert [told.number for section in message.sections for told in section.attempts] == [1]

    def test_a_message_that_reads_otherwise_than_it_should_is_plain_text(self) -> None:
        history = make_history(make_attempt(outcome="failed"))
        content = read(TestSections.FLOW, history).content
        older = "\n".join(line.text for line in content.lines).replace("Issues:", "Problems:")
        message = read(TestSections.FLOW, history, content=older)
        assert message.sections == () and message.own is None and message.is_unexpected
        assert "Problems:" in [line.text for line in message.content.lines]


def test_a_request_of_the_responses_api_reads_like_one_of_chat_completions() -> None:
    history = make_history(make_attempt(outcome="failed", issues=(ISSUE,)))
    requests = []
    for api in (Api.CHAT, Api.RESPONSES):
        body = build_request(TestSections.FLOW, history, 1, {"topic": "tea"}, providers=Providers(Provider(api=api)))
        requests.append(read_model_request(body, tell(TestSections.FLOW, history)))
    chat, responses = requests
    assert responses.messages == chat.messages
    assert responses.messages[0].sections and responses.messages[1].is_json
    assert responses.tools is not None
    assert "instructions" not in str(responses.settings)


TEXT = st.text(st.sampled_from("ab \n#:-“”"), max_size=30)


@given(TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3))
def test_the_parts_together_are_the_message_to_the_letter(own: str, failures: list[tuple[str, str]]) -> None:
    flow = make_flow(make_step(system_message=own))
    attempts = [
        make_attempt(1, number, "failed", output={"text": text}, issues=(make_issue("high", description),))
        for number, (text, description) in enumerate(failures, start=1)
    ]
    history = make_history(*attempts)
    request = build_request(flow, history, 1, {})
    message = read_model_request(request, tell(flow, history)).messages[0]
    if not attempts:
        assert message.sections == ()
        return
    parts = ["\n".join(line.text for line in message.own.lines)] if message.own else []
    for section in message.sections:
        parts += [section.heading, section.note]
        for told in section.attempts:
            lines = [told.heading, *(line.text for line in told.output.lines), "Issues:"]
            lines += [row.text for line in told.lines for row in line.text.lines]
            parts.append("\n".join(lines))
    assert "\n\n".join(parts) == request["messages"][0]["content"]
