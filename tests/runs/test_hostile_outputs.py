"""Outputs that nobody asked for, as far as the rows that hold them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.models import RunStatus
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.executing import attempts_of, run_flow, script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]


class TestHostileOutputs:
    """Whatever a model gives back is stored, or refused with an issue, on either database."""

    @pytest.mark.parametrize(
        "text",
        [
            "x" * 5_000_000,
            "<script>alert(1)</script>",
            "NUL \0 here",
            "lone \ud800 surrogate",
            "\u202eright to left",
            "\x1b[31mred",
        ],
        ids=["5 MB", "html", "nul", "surrogate", "bidi", "ansi"],
    )
    def test_any_text_is_stored(self, provider: ModelServer, text: str) -> None:
        script(provider, tool_1=[{"text": text}])
        run = run_flow(make_flow(make_step(max_retries=0)))
        (attempt,) = attempts_of(run)
        assert run.status == RunStatus.SUCCEEDED
        assert len(attempt.output["text"]) == len(text)
        assert "\0" not in attempt.output["text"]

    @pytest.mark.parametrize(
        "arguments",
        ['{"text": NaN}', '{"text": ' + "[" * 100_000, '{"text": ' + "[" * 150 + "]" * 150 + "}", '{"text": 1e999}'],
        ids=["nan", "unclosed depth", "deep", "overflow"],
    )
    def test_what_is_no_usable_json_is_refused_with_an_issue(self, provider: ModelServer, arguments: str) -> None:
        provider.app = RawArguments(arguments)  # type: ignore[assignment]  # any ASGI app answers
        run = run_flow(make_flow(make_step(max_retries=0)))
        (attempt,) = attempts_of(run)
        assert (run.status, attempt.outcome) == (RunStatus.FAILED, "invalid")
        assert [issue.severity for issue in attempt.issues.all()] == ["critical"]


class RawArguments:
    """An ASGI app whose tool call has just these arguments."""

    def __init__(self, arguments: str) -> None:
        self._arguments = arguments

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = {
            "id": "chatcmpl-1",
            "model": "gpt-4.1",
            "choices": [
                {
                    "finish_reason": "stop",
                    "message": {
                        "role": "assistant",
                        "tool_calls": [
                            {"type": "function", "function": {"name": "tool_1", "arguments": self._arguments}}
                        ],
                    },
                }
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})
