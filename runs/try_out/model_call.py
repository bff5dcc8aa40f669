"""One call of the model for a step that is tried: within the installation's limits, counted, and not kept."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import uuid4

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings

from flows.engine.call_gate import CallGate, Throttled
from flows.engine.clock import describe_seconds
from flows.engine.errors import ModelError
from flows.engine.history import UNREPORTED_USAGE, Attempt, AttemptError, History, Outcome, TokenUsage
from flows.engine.model_api import find_api
from flows.engine.planner import Wait, next_action
from flows.engine.providers import ModelClient
from flows.engine.reply import ToolReply, parse_reply
from flows.engine.spec import FlowSpec, StepSpec
from flows.providers import build_providers
from runs.limits import create_gate
from runs.ownership import Owner
from runs.provider import create_client, price_call
from runs.spending import add_spending, load_budgets

MAX_RETRY_WINDOW = 60
"""Seconds for which calls without an answer are repeated: a web request waits for them."""

_Result = TypeVar("_Result")


class NotSentError(Exception):
    """The call was not made, and nothing is billed; the text says why."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """A reply, or else the error of the last call. ``seconds`` is how long it took, with all waits."""

    reply: ToolReply | None
    error: AttemptError | None
    usage: TokenUsage
    """With its cost."""
    seconds: float


def call_model(*, request: dict[str, Any], step: StepSpec, flow_id: int | None) -> CallResult:
    """Get one answer to ``request``, as the call of an attempt of ``step`` would, and charge it to the flow's budget.

    Blocks for up to the time limit of a call and a few seconds for a permit; a call without an answer is repeated for
    ``MAX_RETRY_WINDOW`` seconds. ``flow_id`` is None for a flow that is not stored. Raises ``NotSentError`` if a budget
    or a rate limit is used up.
    """
    budget = load_budgets().get(flow_id) if flow_id is not None else None
    if budget is not None and (end := budget.find_end()) is not None:
        raise NotSentError(f"Nothing was sent. {end.sentence}")
    # On an event loop of its own, also where the web server has one; database queries run on this thread, which has the
    # connection.
    result: CallResult = async_to_sync(_send, force_new_loop=True)(request, step)
    if flow_id is not None and budget is not None:
        add_spending([(flow_id, result.usage.total, result.usage.cost or Decimal(0))])
    return result


async def _send(request: dict[str, Any], step: StepSpec) -> CallResult:
    """Call until there is an answer or the planner of a run would give up."""
    window = MAX_RETRY_WINDOW if step.retry_window is None else min(step.retry_window, MAX_RETRY_WINDOW)
    spec = FlowSpec(name="try", steps=(step.model_copy(update={"retry_window": window}),))
    history = History.begin({}, run_id=uuid4().hex)
    provider, _ = build_providers().split(step.model or "")
    gate, client = create_gate(owner=str(Owner.of_this_process()), ask=_run_query), create_client(provider)
    began = time.monotonic()
    try:
        await gate.refresh()
        while True:
            started_at = datetime.now(UTC)
            try:
                reply = await _call(request, step, gate, client, f"try-{history.run_id}")
            except ModelError as caught:
                error = AttemptError(
                    code=caught.code, message=caught.message, status=caught.status, retry_after=caught.retry_after
                )
            else:
                model = reply.model or request["model"]
                usage = price_call(model, reply.usage, provider=provider, service_tier=reply.service_tier)
                return CallResult(reply, None, usage, time.monotonic() - began)
            failed = Attempt(
                step=1,
                number=len(history.attempts(1)) + 1,
                outcome=Outcome.ERRORED,
                error=error,
                started_at=started_at,
                ended_at=datetime.now(UTC),
            )
            history = history.append(failed)
            action = next_action(spec, history)
            if not isinstance(action, Wait):
                return CallResult(None, error, UNREPORTED_USAGE, time.monotonic() - began)
            await asyncio.sleep((action.until - datetime.now(UTC)).total_seconds())
    finally:
        await client.close()
        await gate.close()


async def _call(
    request: dict[str, Any], step: StepSpec, gate: CallGate, client: ModelClient, idempotency_key: str
) -> ToolReply:
    permit = await gate.enter({**request, "model": step.model})
    if isinstance(permit, Throttled):
        wait = max(1, math.ceil((permit.until - datetime.now(UTC)).total_seconds()))
        sentence = permit.sentence[:1].lower() + permit.sentence[1:]
        raise NotSentError(f"Nothing was sent: a call now {sentence} Try again in {describe_seconds(wait)}.")
    timeout = float(settings.TOOLFLOW_CALL_TIMEOUT)
    if step.time_limit is not None:
        timeout = min(timeout, step.time_limit)
    used: TokenUsage | None = None
    try:
        response = await client.complete(request, idempotency_key=idempotency_key, timeout=timeout)
        reply = parse_reply(response.body, tool_name=step.tool_name or "", api=find_api(request))
        used = reply.usage if reply.usage.reported else None
        return reply
    finally:
        permit.release(used)


def _run_query(query: Callable[[], _Result], /) -> Awaitable[_Result]:
    return sync_to_async(query, thread_sensitive=True)()
