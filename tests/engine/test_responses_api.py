"""The Responses API: what is sent and read there means the same as on chat completions."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.history import Outcome, TokenUsage
from flows.engine.openai_client import simulated_client
from flows.engine.providers import Api
from flows.engine.reply import parse_reply
from flows.engine.running import run_flow
from flows.engine.simulated_model import Fault, FaultKind, SimulatedModel
from tests.engine.builders import make_flow
from tests.engine.executions import LONG, SHORT, audited, execute, simulate

REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def make_call(arguments: Any = '{"color":"red"}', name: Any = "make") -> dict[str, Any]:
    return {"type": "function_call", "call_id": "call_1", "name": name, "arguments": arguments}


def make_text(**part: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [part]}


def make_body(*output: Any, **changes: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 1_200,
        "input_tokens_details": {"cached_tokens": 1_024},
        "output_tokens": 800,
        "output_tokens_details": {"reasoning_tokens": 64},
        "total_tokens": 2_000,
    }
    whole = {"id": "resp_1", "model": "gpt-6-sol-2026-09", "status": "completed", "output": list(output)}
    return {**whole, "usage": usage, "service_tier": "flex", **changes}


def make_cut(*output: Any, reason: str) -> dict[str, Any]:
    return make_body(*output, status="incomplete", incomplete_details={"reason": reason})


def read(body: Any) -> Any:
    return parse_reply(body, tool_name="make", api=Api.RESPONSES)


class TestReading:
    def test_a_call_after_reasoning_gives_its_arguments_and_what_was_billed(self) -> None:
        reply = read(make_body(REASONING, make_call()))
        assert (reply.arguments, reply.issues) == ({"color": "red"}, ())
        assert reply.usage == TokenUsage(prompt=1_200, completion=800, total=2_000, cached=1_024, reasoning=64)
        assert (reply.model, reply.response_id) == ("gpt-6-sol-2026-09", "resp_1")
        assert (reply.finish_reason, reply.service_tier) == ("tool_calls", "flex")

    @pytest.mark.parametrize(
        ("body", "code", "finish_reason", "raw"),
        [
            (make_body(make_call(name="other")), "wrong_tool", "tool_calls", '{"color":"red"}'),
            (make_body(make_text(type="output_text", text="Sure!")), "no_tool_call", "stop", "Sure!"),
            (make_body(make_text(type="refusal", refusal="No.")), "refusal", "stop", "No."),
            (make_body(make_call("{oops")), "malformed_arguments", "tool_calls", "{oops"),
            (make_body(make_call("[]")), "arguments_not_object", "tool_calls", "[]"),
            (make_cut(make_call('{"c'), reason="max_output_tokens"), "truncated", "length", '{"c'),
            (make_cut(reason="max_output_tokens"), "truncated", "length", None),
            (make_cut(reason="content_filter"), "content_filter", "content_filter", None),
            (make_body(REASONING), "empty_choices", "stop", None),
            (make_body(status="in_progress"), "unreadable_reply", "in_progress", None),
            ({"object": "list"}, "unreadable_reply", "stop", None),
        ],
    )
    def test_an_answer_that_can_t_be_used_says_why(
        self, body: Any, code: str, finish_reason: str, raw: str | None
    ) -> None:
        reply = read(body)
        assert reply.arguments is None
        assert [issue.code for issue in reply.issues] == [code]
        assert (reply.finish_reason, reply.raw) == (finish_reason, raw)

    @pytest.mark.parametrize(
        "body",
        [
            None, 7, [], {"output": 7}, {"output": [7, None, {"type": "message"}]}, make_body(make_text()),
            make_body({"type": "function_call"}), make_body(status=7), make_body({"type": "message", "content": 7}),
            make_body(incomplete_details=7, status="incomplete"), make_body(usage=[]), make_body(make_call(name=["x"])),
        ],
    )  # fmt: skip
    def test_whatever_comes_reading_it_never_raises(self, body: Any) -> None:
        reply = read(body)
        assert reply.arguments is None and reply.issues


FAULTS = [
    FaultKind.MALFORMED, FaultKind.NOT_OBJECT, FaultKind.TRUNCATED, FaultKind.WRONG_TOOL, FaultKind.NO_TOOL,
    FaultKind.REFUSAL, FaultKind.CONTENT_FILTER, FaultKind.EMPTY_CHOICES, FaultKind.RATE_LIMITED,
    FaultKind.SERVER_ERROR, FaultKind.HTML,
]  # fmt: skip


class TestRuns:
    @pytest.mark.parametrize("kind", FAULTS)
    async def test_what_goes_wrong_ends_in_the_same_attempts_by_both_apis(self, kind: FaultKind) -> None:
        found = []
        for api in (Api.CHAT, Api.RESPONSES):
            app = simulate(tool_1=[Fault(kind, retry_after=0), SHORT, LONG])
            client = simulated_client(app, api=api)
            end = await execute(make_flow(audited(model="gpt-4.1")), client=client)
            attempts = end.history.attempts(1)
            found.append(
                [(one.outcome, [i.code for i in one.issues], one.error and one.error.code) for one in attempts]
            )
            assert all(("input" in call.body) == (api is Api.RESPONSES) for call in app.calls)
        assert found[0] == found[1]
        assert found[0][-1][0] is Outcome.PASSED

    @pytest.mark.parametrize("model", ["gpt-6-astra", "gpt-6-sol", "gpt-5.6-luna", "gpt-5.5", "gpt-7-unknown"])
    async def test_the_models_of_this_year_run_as_they_are(self, model: str) -> None:
        result = await run_flow(
            make_flow(audited(model=model)), {"topic": "tea"}, client=simulated_client(SimulatedModel())
        )
        assert result.passed
        (attempt,) = result.step(1).attempts
        assert attempt.request is not None and attempt.request["store"] is False
        assert (attempt.model, attempt.finish_reason) == (model, "tool_calls")
        assert attempt.usage.total > 0
