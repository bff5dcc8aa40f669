"""One call of the model for a step that is tried: within the installation's limits, counted, and not kept."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings

from flows.engine.call_gate import Throttled
from flows.engine.clock import describe_seconds
from flows.engine.history import Attempt, AttemptError, History, Outcome
from flows.engine.model_calls import send_request
from flows.engine.planner import Wait, next_action
from flows.engine.reply import ToolReply
from flows.engine.spec import FlowSpec
from flows.providers import build_providers, create_client, price_call
from runs.limits.gate import create_gate
from runs.ownership import Owner
from runs.spending import add_spending, load_budgets
from runs.try_out.trial import Trial

MAX_RETRY_WINDOW = 60
"""Seconds for which calls without an answer are repeated: a web request waits for them."""


class NotSentError(Exception):
    """The call was not made, and nothing is billed; the text says why."""


def call_model(trial: Trial, request: dict[str, Any], *, flow_id: int | None) -> tuple[ToolReply | AttemptError, float]:
    """The answer to ``request`` with its cost, or the error of the last call, and the seconds that all of it took.

    Calls as an attempt of the step would, repeats it for ``MAX_RETRY_WINDOW`` seconds, and charges the flow's budget;
    ``flow_id`` is None for a flow that is not stored. Raises ``NotSentError`` if a budget or a rate limit is used up.
    """
    budget = load_budgets().get(flow_id) if flow_id is not None else None
    if budget is not None and (end := budget.find_end()) is not None:
        raise NotSentError(f"Nothing was sent. {end.sentence}")
    began = time.monotonic()
    # On an event loop of its own, also where the web server has one; database queries run on this thread, which has the
    # connection.
    answer: ToolReply | AttemptError = async_to_sync(_send, force_new_loop=True)(trial, request)
    if flow_id is not None and budget is not None and isinstance(answer, ToolReply):
        add_spending([(flow_id, answer.usage.total, answer.usage.cost or Decimal(0))])
    return answer, time.monotonic() - began


async def _send(trial: Trial, request: dict[str, Any]) -> ToolReply | AttemptError:
    """Call until there is an answer or the planner of a run would give up."""
    step = trial.step
    window = MAX_RETRY_WINDOW if step.retry_window is None else min(step.retry_window, MAX_RETRY_WINDOW)
    spec = FlowSpec(name="try", steps=(step.model_copy(update={"retry_window": window}),))
    history = History.begin({}, run_id=uuid4().hex)
    provider, _ = build_providers().split(step.model or "")
    gate, client = (
        create_gate(owner=str(Owner.of_this_process()), ask=lambda query: sync_to_async(query)()),
        create_client(provider),
    )
    try:
        await gate.refresh()
        while True:
            permit = await gate.enter({**request, "model": step.model})
            if isinstance(permit, Throttled):
                wait = max(1, math.ceil((permit.until - datetime.now(UTC)).total_seconds()))
                sentence = permit.sentence[:1].lower() + permit.sentence[1:]
                raise NotSentError(f"Nothing was sent: a call now {sentence} Try again in {describe_seconds(wait)}.")
            started_at = datetime.now(UTC)
            answer = await send_request(
                client,
                request,
                tool_name=step.tool_name or "",
                idempotency_key=f"try-{history.run_id}",
                timeout=min(float(settings.TOOLFLOW_CALL_TIMEOUT), step.time_limit or math.inf),
                logs_errors=not trial.spec.redact,
            )
            if isinstance(answer, ToolReply):
                permit.release(answer.usage if answer.usage.reported else None)
                model = answer.model or request["model"]
                usage = price_call(model, answer.usage, provider=provider, service_tier=answer.service_tier)
                return replace(answer, usage=usage)
            permit.release(None)
            failed = Attempt(
                step=1,
                number=len(history.attempts(1)) + 1,
                outcome=Outcome.ERRORED,
                error=answer,
                started_at=started_at,
                ended_at=datetime.now(UTC),
            )
            history = history.append(failed)
            action = next_action(spec, history)
            if not isinstance(action, Wait):
                return answer
            await asyncio.sleep((action.until - datetime.now(UTC)).total_seconds())
    finally:
        await client.close()
        await gate.close()
