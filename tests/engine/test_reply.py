"""Reading answers: what can be used is used, and everything else says precisely what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.engine.history import UNREPORTED_USAGE, Severity, TokenUsage
from flows.engine.json_values import clean_value
from flows.engine.reply import MAX_RAW_LENGTH, parse_reply

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
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, "refusal": None, **message},
    }
    if calls:
        choice["message"]["tool_calls"] = list(calls)
    return {"id": "chatcmpl-1", "model": "gpt-4o-mini-2024-07-18", "choices": [choice], "usage": USAGE}


def read(body: Any) -> Any:
    return parse_reply(body, tool_name="make_suite")


def explain(body: Any) -> tuple[str, str]:
    """Code and description of the only issue."""
    reply = read(body)
    assert reply.arguments is None
    (issue,) = reply.issues
    assert issue.severity is Severity.CRITICAL
    return issue.code, issue.description


@pytest.mark.parametrize("finish_reason", ["stop", "tool_calls", None])
def test_a_call_of_the_tool_gives_its_arguments_and_what_was_billed(finish_reason: str | None) -> None:
    reply = read(make_body(make_call(), finish_reason=finish_reason))
    assert reply.arguments == {"color": "red"}
    assert (reply.raw, reply.issues) == (None, ())
    assert reply.usage == TokenUsage(prompt=1_200, completion=800, total=2_000, cached=1_024, reasoning=64)
    assert (reply.model, reply.response_id) == ("gpt-4o-mini-2024-07-18", "chatcmpl-1")
    assert reply.finish_reason == finish_reason


def test_arguments_that_come_as_an_object_are_taken_as_they_are() -> None:
    assert read(make_body(make_call({"color": "red"}))).arguments == {"color": "red"}


def test_text_beside_the_call_doesn_t_matter() -> None:
    assert read(make_body(make_call(), content="Here you are.")).arguments == {"color": "red"}


@pytest.mark.parametrize(
    ("body", "code", "description"),
    [
        (
            make_body(make_call(name="make_seed")),
            "wrong_tool",
            "Expected a call of the tool `make_suite`, got a call of `make_seed`.",
        ),
        (
            make_body(make_call(name=None)),
            "wrong_tool",
            "Expected a call of the tool `make_suite`, got a call that names no tool.",
        ),
        (
            make_body(content="Sure!\nHere it is."),
            "no_tool_call",
            "Expected a call of the tool `make_suite`, got text: “Sure! Here it is.”",
        ),
        (make_body(), "no_tool_call", "Expected a call of the tool `make_suite`, got nothing."),
        (make_body(refusal="I can't."), "refusal", "The model refused to answer: “I can't.”"),
        (
            make_body(make_call('{"color":'), finish_reason="length"),
            "truncated",
            (
                "The answer was cut off after 800 completion tokens (finish_reason “length”), so that it is "
                "incomplete. Answer more briefly, or raise the step's max tokens."
            ),
        ),
        (
            {**make_body(finish_reason="length"), "usage": None},
            "truncated",
            (
                "The answer was cut off (finish_reason “length”), so that it is incomplete. "
                "Answer more briefly, or raise the step's max tokens."
            ),
        ),
        (
            make_body(finish_reason="content_filter"),
            "content_filter",
            (
                "The provider's content filter withheld the answer (finish_reason “content_filter”). "
                "Keep to wording that is beyond doubt."
            ),
        ),
        (
            make_body(make_call(), make_call(name="make_seed")),
            "several_tool_calls",
            (
                "Expected one call of the tool `make_suite`, got 2 calls: `make_suite`, `make_seed`. "
                "Put everything into one call."
            ),
        ),
        (
            make_body(make_call('["red"]')),
            "arguments_not_object",
            "The arguments of `make_suite` must be a JSON object, got a list.",
        ),
        (
            make_body(make_call("null")),
            "arguments_not_object",
            "The arguments of `make_suite` must be a JSON object, got null.",
        ),
        (
            make_body(make_call(["red"])),
            "arguments_not_object",
            "The arguments of `make_suite` must be a JSON object, got a list.",
        ),
        (
            {**make_body(), "choices": []},
            "empty_choices",
            "The response has no choices: the model gave no answer at all.",
        ),
        ({"object": "list"}, "unreadable_reply", "The response is no chat completion: it has no list of choices."),
        (
            {"choices": [{"text": "old API"}]},
            "unreadable_reply",
            "The response is no chat completion: its first choice has no message.",
        ),
        (
            make_body(tool_calls={"name": "make_suite"}),
            "unreadable_reply",
            "The response is no chat completion: “tool_calls” is no list.",
        ),
    ],
)
def test_an_answer_that_can_t_be_used_says_why(body: Any, code: str, description: str) -> None:
    assert explain(body) == (code, description)


@pytest.mark.parametrize("body", [None, "<html>", 7, [], {}, {"choices": None}, {"choices": [None]}])
def test_what_is_no_completion_at_all_is_unreadable(body: Any) -> None:
    assert explain(body)[0] == "unreadable_reply"


def test_broken_json_is_shown_where_it_broke() -> None:
    text = '{\n  "primary": "#112233",\n  "accent": "#445566"\n  "surface": "#778899"\n}'
    code, description = explain(make_body(make_call(text)))
    assert code == "malformed_arguments"
    assert description == (
        "The arguments of `make_suite` are not valid JSON. Line 4, column 3: Expecting ',' delimiter. "
        'It is near “233", "accent": "#445566" "surface": "#778899" }”.'
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "empty"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "Infinity is not a JSON number"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested deeper"),
        ('{"a":' * 150 + "1" + "}" * 150, "nested deeper"),
        ("```json\n{}\n```", "Line 1, column 1"),
        ({"a": float("nan")}, "NaN"),
        ({"a": object()}, "not valid JSON"),
    ],
)
def test_arguments_that_json_or_the_engine_can_t_hold_are_malformed(arguments: Any, words: str) -> None:
    code, description = explain(make_body(make_call(arguments)))
    assert code == "malformed_arguments"
    assert words in description


def test_nul_and_lone_surrogates_are_left_for_whoever_stores_the_output() -> None:
    reply = read(make_body(make_call('{"a": "x\\u0000y", "b": "\\ud800"}')))
    assert reply.arguments == {"a": "x\0y", "b": "\ud800"}


def test_an_output_of_five_megabytes_is_read() -> None:
    reply = read(make_body(make_call(json.dumps({"text": "x" * 5_000_000}))))
    assert reply.arguments is not None
    assert len(reply.arguments["text"]) == 5_000_000


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (make_body(make_call("{oops", name="make_suite")), "{oops"),
        (make_body(make_call('{"a":1}', name="other")), '{"a":1}'),
        (make_body(make_call('{"a":', name="make_suite"), finish_reason="length"), '{"a":'),
        (make_body(content="Sure!"), "Sure!"),
        (make_body(refusal="No."), "No."),
        (make_body(), None),
    ],
)
def test_the_text_that_came_is_kept_beside_its_issue(body: Any, raw: str | None) -> None:
    assert read(body).raw == raw


def test_all_calls_are_kept_where_several_came() -> None:
    raw = read(make_body(make_call(), make_call('{"color":"blue"}'))).raw
    assert [call["function"]["arguments"] for call in json.loads(raw)] == ['{"color":"red"}', '{"color":"blue"}']


def test_a_long_unusable_text_is_cut_and_says_so() -> None:
    raw = read(make_body(content="x" * 100_000)).raw
    assert len(raw) == MAX_RAW_LENGTH
    assert raw.endswith("… (cut here; 100,000 characters came)")


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        {},
        {"prompt_tokens": 5},
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": "5", "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": 1.5},
        {"prompt_tokens": 5, "completion_tokens": 10**30},
    ],
)
def test_usage_that_is_missing_or_nonsense_counts_as_not_reported(usage: Any) -> None:
    assert read({**make_body(make_call()), "usage": usage}).usage == UNREPORTED_USAGE


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"total_tokens": None}, TokenUsage(prompt=1_200, completion=800, total=2_000, cached=1_024, reasoning=64)),
        ({"total_tokens": 5}, TokenUsage(prompt=1_200, completion=800, total=2_000, cached=1_024, reasoning=64)),
        ({"total_tokens": 2_300}, TokenUsage(prompt=1_200, completion=800, total=2_300, cached=1_024, reasoning=64)),
        (
            {"prompt_tokens_details": None, "completion_tokens_details": "none"},
            TokenUsage(prompt=1_200, completion=800, total=2_000),
        ),
        (
            {"prompt_tokens_details": {"cached_tokens": 9_999}, "completion_tokens_details": {"reasoning_tokens": -1}},
            TokenUsage(prompt=1_200, completion=800, total=2_000, cached=1_200),
        ),
    ],
)
def test_details_of_usage_that_can_t_be_true_are_mended(changes: dict[str, Any], expected: TokenUsage) -> None:
    assert read({**make_body(make_call()), "usage": {**USAGE, **changes}}).usage == expected


def test_names_that_the_provider_sent_are_fit_to_be_stored() -> None:
    body = {**make_body(make_call(name="\0\ud800"), finish_reason="st\0p"), "model": "m" * 5_000, "id": 7}
    reply = read(body)
    assert reply.model is not None
    assert len(reply.model) <= 200
    assert reply.response_id is None
    assert reply.finish_reason == "st\ufffdp"
    assert reply.issues[0].description.endswith("got a call of `\ufffd\ufffd`.")


_texts = st.text(st.characters(), max_size=20) | st.sampled_from(["\0", "\ud800", "make_suite", "{}", "length", "stop"])
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_calls = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": _texts | _anything, "arguments": _texts | _anything}) | _anything}
)
_bodies = st.fixed_dictionaries(
    {},
    optional={
        "id": _anything,
        "model": _anything,
        "usage": st.dictionaries(st.sampled_from(sorted(USAGE)), _anything) | _anything,
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "finish_reason": _texts | _anything,
                    "message": st.fixed_dictionaries(
                        {},
                        optional={
                            "content": _anything,
                            "refusal": _anything,
                            "tool_calls": st.lists(_calls | _anything, max_size=2) | _anything,
                        },
                    )
                    | _anything,
                },
            )
            | _anything,
            max_size=2,
        )
        | _anything,
    },
)


@settings(max_examples=400, deadline=None)
@given(body=_bodies | _anything)
@example(
    body={"choices": [{"message": {"tool_calls": [{"function": {"name": "make_suite", "arguments": "[" * 10**5}}]}}]}
)
def test_whatever_comes_reading_it_never_raises(body: Any) -> None:
    reply = parse_reply(body, tool_name="make_suite")
    assert (reply.arguments is None) == bool(reply.issues)
    for issue in reply.issues:
        assert clean_value(issue.description).notes == ()
        assert len(issue.description) < 1_500
    for name in (reply.model, reply.response_id, reply.finish_reason):
        assert name is None or clean_value(name).notes == ()
    if reply.arguments is not None:
        clean_value(reply.arguments)
    assert reply.usage.total >= reply.usage.prompt + reply.usage.completion
