"""Reading answers of both APIs: what can be used is used, and everything else says precisely what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import Outcome, Severity, TokenUsage
from flows.engine.json_values import clean_value
from flows.engine.openai_client import simulated_client
from flows.engine.providers import Api
from flows.engine.reply import MAX_RAW_LENGTH, parse_reply
from flows.engine.simulated_model import Fault, FaultKind
from tests.engine.builders import make_flow
from tests.engine.executions import LONG, SHORT, audited, execute, simulate

BILLED = TokenUsage(prompt=1_200, completion=800, total=2_000, cached=1_024, reasoning=64)


USAGE = {
    "prompt_tokens": 1_200,
    "completion_tokens": 800,
    "total_tokens": 2_000,
    "prompt_tokens_details": {"cached_tokens": 1_024},
    "completion_tokens_details": {"reasoning_tokens": 64},
}


def make_call(arguments: Any = '{"color":"red"}', name: Any = "make_suite") -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def make_body(*calls: Any, finish_reason: Any = "stop", content: Any = None, **message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": content, "refusal": None, **message}
    if calls:
        whole["tool_calls"] = list(calls)
    choice = {"index": 0, "finish_reason": finish_reason, "message": whole}
    return {"id": "chatcmpl-1", "model": "gpt-4o-mini-2024-07-18", "choices": [choice], "usage": USAGE}


def read(body: Any) -> Any:
    return parse_reply(body, tool_name="make_suite")


@pytest.mark.parametrize("finish_reason", ["stop", "tool_calls", None])
@pytest.mark.parametrize("arguments", ['{"color":"red"}', {"color": "red"}])
def test_a_call_of_the_tool_gives_its_arguments_and_what_was_billed(finish_reason: str | None, arguments: Any) -> None:
    reply = read(make_body(make_call(arguments), finish_reason=finish_reason, content="Here you are."))
    assert reply.arguments == {"color": "red"}
    assert (reply.raw, reply.issues, reply.usage) == (None, (), BILLED)
    assert (reply.model, reply.response_id) == ("gpt-4o-mini-2024-07-18", "chatcmpl-1")
    assert reply.finish_reason == finish_reason


@pytest.mark.parametrize(
    ("body", "code", "words", "raw"),
    [
        (make_body(make_call('{"a":1}', name="other")), "wrong_tool", "got a call of `other`.", '{"a":1}'),
        (make_body(make_call(name=None)), "wrong_tool", "a call without a tool name", '{"color":"red"}'),
        (make_body(content="Sure!\nHere."), "no_tool_call", "got text: “Sure! Here.”", "Sure!\nHere."),
        (make_body(), "no_tool_call", "Expected a call of the tool `make_suite`, got nothing.", None),
        (make_body(refusal="I can't."), "refusal", "The model refused to answer: “I can't.”", "I can't."),
        (make_body(make_call('{"a":'), finish_reason="length"), "truncated", "after 800 completion tokens", '{"a":'),
        (make_body(make_call('{"a":1}'), finish_reason="length"), "truncated", "max tokens", '{"a":1}'),
        ({**make_body(finish_reason="length"), "usage": None}, "truncated", "was cut off (finish_reason", None),
        (make_body(finish_reason="content_filter"), "content_filter", "content filter", None),
        (make_body(make_call('["red"]')), "arguments_not_object", "must be a JSON object, got a list.", '["red"]'),
        (make_body(make_call(["red"])), "arguments_not_object", "must be a JSON object, got a list.", None),
        ({**make_body(), "choices": []}, "empty_choices", "no choices", None),
        ({"object": "list"}, "unreadable_reply", "no list of choices", None),
        ({"choices": [None]}, "unreadable_reply", "its first choice has no message", None),
        (make_body(tool_calls={"name": "x"}), "unreadable_reply", "“tool_calls”", '{"name": "x"}'),
        ("<html>", "unreadable_reply", "not a chat completion", None),
    ],
)
def test_an_answer_that_can_t_be_used_says_why_and_its_text_is_kept(
    body: Any, code: str, words: str, raw: str | None
) -> None:
    reply = read(body)
    (issue,) = reply.issues
    assert (reply.arguments, issue.code, issue.severity, reply.raw) == (None, code, Severity.CRITICAL, raw)
    assert words in issue.description


def test_of_several_calls_none_is_picked_and_all_are_kept() -> None:
    reply = read(make_body(make_call(), make_call('{"color":"blue"}', name="make_seed")))
    assert [issue.code for issue in reply.issues] == ["several_tool_calls"]
    assert "got 2 calls: `make_suite`, `make_seed`." in reply.issues[0].description
    assert [call["function"]["arguments"] for call in json.loads(reply.raw)] == ['{"color":"red"}', '{"color":"blue"}']


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{\n  "accent": "#445566"\n  "surface": "#778899"\n}', "Line 3, column 3: "),
        ('{\n  "accent": "#445566"\n  "surface": "#778899"\n}', 'near “{ "accent": "#445566" "surface"'),
        ("", "empty"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a":' * 150 + "1" + "}" * 150, "nested deeper"),
        ({"a": float("nan")}, "NaN"),
    ],
)
def test_arguments_that_json_or_the_engine_can_t_hold_are_malformed(arguments: Any, words: str) -> None:
    (issue,) = read(make_body(make_call(arguments))).issues
    assert (issue.code, words in issue.description) == ("malformed_arguments", True)


def test_an_output_of_megabytes_is_read_and_a_long_text_that_is_none_is_cut_and_says_so() -> None:
    reply = read(make_body(make_call(json.dumps({"text": "x" * 5_000_000}))))
    assert len(reply.arguments["text"]) == 5_000_000
    raw = read(make_body(content="x" * 100_000)).raw
    assert (len(raw), raw.endswith("… (cut here; 100,000 characters came)")) == (MAX_RAW_LENGTH, True)


def test_names_that_the_provider_sent_are_fit_to_be_stored() -> None:
    reply = read({**make_body(make_call(name="\0\ud800"), finish_reason="st\0p"), "model": "m" * 5_000, "id": 7})
    assert (len(reply.model), reply.response_id, reply.finish_reason) == (200, None, "st\ufffdp")
    assert reply.issues[0].description.endswith("got a call of `\ufffd\ufffd`.")


class TestResponses:
    """The Responses API: what is sent and read there means the same as on chat completions."""

    REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
    USAGE = {
        "input_tokens": 1_200,
        "input_tokens_details": {"cached_tokens": 1_024},
        "output_tokens": 800,
        "output_tokens_details": {"reasoning_tokens": 64},
        "total_tokens": 2_000,
    }

    @staticmethod
    def call(arguments: Any = '{"color":"red"}', name: Any = "make_suite") -> dict[str, Any]:
        return {"type": "function_call", "call_id": "call_1", "name": name, "arguments": arguments}

    @staticmethod
    def text(**part: Any) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": [part]}

    @classmethod
    def read(cls, *output: Any, **changes: Any) -> Any:
        whole = {"id": "resp_1", "model": "gpt-6-sol-2026-09", "status": "completed", "output": list(output)}
        body = {**whole, "usage": cls.USAGE, "service_tier": "flex", **changes}
        return parse_reply(body, tool_name="make_suite", api=Api.RESPONSES)

    def test_a_call_after_reasoning_gives_its_arguments_and_what_was_billed(self) -> None:
        reply = self.read(self.REASONING, self.call())
        assert (reply.arguments, reply.issues, reply.usage) == ({"color": "red"}, (), BILLED)
        assert (reply.model, reply.response_id) == ("gpt-6-sol-2026-09", "resp_1")
        assert (reply.finish_reason, reply.service_tier) == ("tool_calls", "flex")

    def test_an_answer_that_can_t_be_used_says_why(self) -> None:
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        table: list[tuple[list[Any], dict[str, Any], str, str | None]] = [
            ([self.call(name="other")], {}, "wrong_tool tool_calls", '{"color":"red"}'),
            ([self.text(type="output_text", text="Sure!")], {}, "no_tool_call stop", "Sure!"),
            ([self.text(type="refusal", refusal="No.")], {}, "refusal stop", "No."),
            ([self.call("{oops")], {}, "malformed_arguments tool_calls", "{oops"),
            ([self.call('{"c')], cut, "truncated length", '{"c'),
            ([], {**cut, "incomplete_details": {"reason": "content_filter"}}, "content_filter content_filter", None),
            ([self.REASONING], {}, "empty_choices stop", None),
            ([], {"status": "in_progress"}, "unreadable_reply in_progress", None),
        ]
        for output, changes, reported, raw in table:
            reply = self.read(*output, **changes)
            assert (reply.arguments, reply.raw) == (None, raw)
            assert [f"{issue.code} {reply.finish_reason}" for issue in reply.issues] == [reported]

    @pytest.mark.parametrize(
        "kind",
        [
            *(FaultKind.MALFORMED, FaultKind.NOT_OBJECT, FaultKind.TRUNCATED, FaultKind.WRONG_TOOL, FaultKind.NO_TOOL),
            *(FaultKind.REFUSAL, FaultKind.CONTENT_FILTER, FaultKind.EMPTY_CHOICES, FaultKind.SERVER_ERROR),
        ],
    )
    async def test_what_goes_wrong_ends_in_the_same_attempts_by_both_apis(self, kind: FaultKind) -> None:
        found = []
        for api in (Api.CHAT, Api.RESPONSES):
            app = simulate(tool_1=[Fault(kind, retry_after=0), SHORT, LONG])
            end = await execute(make_flow(audited(model="gpt-4.1")), client=simulated_client(app, api=api))
            attempts = end.history.attempts(1)
            found.append(
                [(one.outcome, [i.code for i in one.issues], one.error and one.error.code) for one in attempts]
            )
            assert all(("input" in call.body) == (api is Api.RESPONSES) for call in app.calls)
        assert (found[0], found[0][-1][0]) == (found[1], Outcome.PASSED)


_texts = st.sampled_from(["\0", "\ud800", "make_suite", "{}", "length", "stop", "output", "function_call", "message"])
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


@given(parts=st.lists(_anything, min_size=6, max_size=6))
def test_whatever_comes_reading_it_never_raises(parts: list[Any]) -> None:
    name, arguments, reason, content, usage, choices = parts
    whole = make_body(make_call(arguments, name), finish_reason=reason, content=content)
    bodies = ({**whole, "usage": usage, "id": name}, {**whole, "choices": choices}, choices)
    replies = [read(body) for body in bodies]
    items = [choices, TestResponses.call(arguments, name), {"type": "message", "content": content}]
    replies += [TestResponses.read(item, status=reason, incomplete_details=content, usage=usage) for item in items]
    replies += [parse_reply({"output": choices}, tool_name="make_suite", api=Api.RESPONSES)]
    for reply in replies:
        assert (reply.arguments is None) == bool(reply.issues)
        for issue in reply.issues:
            assert clean_value(issue.description).notes == ()
            assert len(issue.description) < 1_500
        for text in (reply.model, reply.response_id, reply.finish_reason):
            assert text is None or clean_value(text).notes == ()
