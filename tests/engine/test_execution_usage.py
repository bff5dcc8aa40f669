"""Tokens and their cost: what each attempt was billed for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.engine.history import NO_USAGE, UNREPORTED_USAGE, Outcome, Severity, TokenUsage
from flows.engine.simulated_model import Fault, FaultKind, SimulatedModel
from tests.engine.builders import make_flow
from tests.engine.executions import LONG, audited, execute, simulate


class _OtherServer:
    """A compatible server that answers as the simulated model does, but for some fields; None leaves one out."""

    def __init__(self, app: SimulatedModel, **changes: Any) -> None:
        self._app = app
        self._changes = changes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self._app(scope, receive, keep)
        body = json.loads(messages[1]["body"])
        body = {name: value for name, value in {**body, **self._changes}.items() if value is not None}
        content = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({**messages[0], "headers": headers})
        await send({**messages[1], "body": content})


def _never_asked(model: str, usage: TokenUsage, **_: Any) -> TokenUsage:
    raise AssertionError("nothing is tracked, so nothing is priced")


class TestUsage:
    @pytest.mark.parametrize(
        "kind",
        [FaultKind.TRUNCATED, FaultKind.REFUSAL, FaultKind.EMPTY_CHOICES],
    )
    async def test_an_answer_that_cannot_be_used_is_an_invalid_attempt_whose_tokens_count(
        self, kind: FaultKind
    ) -> None:
        end = await execute(make_flow(audited()), simulate(tool_1=[Fault(kind), LONG]))
        first, second = end.history.attempts(1)
        assert (first.outcome, second.outcome) == (Outcome.INVALID, Outcome.PASSED)
        (issue,) = first.issues
        assert issue.severity is Severity.CRITICAL
        assert first.output is None
        assert first.usage.reported and first.usage.prompt > 0
        assert first.usage.total == first.usage.prompt + first.usage.completion

    async def test_a_provider_that_reports_none_is_not_taken_for_one_that_used_none(self) -> None:
        end = await execute(make_flow(audited()), _OtherServer(simulate(tool_1=[LONG]), usage=None))
        (attempt,) = end.history.attempts(1)
        assert (attempt.outcome, attempt.usage) == (Outcome.PASSED, UNREPORTED_USAGE)

    async def test_without_tracking_no_attempt_has_any(self) -> None:
        replies = [Fault(FaultKind.SERVER_ERROR), Fault(FaultKind.REFUSAL), LONG]
        tracked = await execute(make_flow(audited()), simulate(tool_1=replies))
        assert [attempt.usage.reported for attempt in tracked.history.attempts(1)] == [False, True, True]
        end = await execute(make_flow(audited()), simulate(tool_1=replies), track_usage=False, price=_never_asked)
        assert [attempt.usage for attempt in end.history.attempts(1)] == [NO_USAGE] * 3

    @pytest.mark.parametrize(("named", "priced"), [("gpt-4.1-2025-04-14",) * 2, (None, "gpt-4.1")])
    async def test_the_model_that_counts_is_the_one_the_provider_names_else_the_one_asked(
        self, named: str | None, priced: str
    ) -> None:
        asked: list[str] = []

        def price(model: str, usage: TokenUsage, **_: Any) -> TokenUsage:
            asked.append(model)
            return usage

        end = await execute(make_flow(audited()), _OtherServer(simulate(tool_1=[LONG]), model=named), price=price)
        assert (asked, end.history.attempts(1)[0].model) == ([priced], named)
