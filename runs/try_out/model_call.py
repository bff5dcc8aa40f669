"""One call of the model for a step that is tried: within the installation's limits, counted, and not kept."""

from __future__ import annotations

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

from flows.engine.call_gate import Closed
from flows.engine.clock import describe_seconds
from flows.engine.errors import ModelError
from flows.engine.model_request import find_api
from flows.engine.reply import ToolReply, read_reply
from flows.engine.usage import UNREPORTED_USAGE, TokenUsage
from flows.providers import build_providers
from runs.limits import create_gate
from runs.ownership import Owner
from runs.provider import create_client, price_call
from runs.spending import add_spending, load_budgets

_Result = TypeVar("_Result")


class NotSentError(Exception):
    """The call was not made, and nothing is billed; a sentence says why."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call brought: a reply, or else an ``error``. ``seconds`` is how long it took."""

    reply: ToolReply | None
    error: ModelError | None
    usage: TokenUsage
    """With its cost."""
    seconds: float


def call_model_once(
    *, request: dict[str, Any], model: str, tool_name: str, flow_id: int | None, timeout: float
) -> CallResult:
    """Send ``request`` once, as the call of an attempt would be, and charge it to the flow's total budget.

    ``model`` is the name by which the step calls it, ``model`` or ``provider:model``.
    Blocks until the answer is there, ``timeout`` seconds at most, and a few more for a permit. ``flow_id`` is None for
    a flow that is not stored. Raises ``NotSentError`` if a budget or a rate limit is used up.
    """
    budget = load_budgets().get(flow_id) if flow_id is not None else None
    if budget is not None and (end := budget.find_end()) is not None:
        raise NotSentError(f"Nothing was sent. {end.sentence}")
    # On an event loop of its own, also where the web server has one; what it asks of the database is done on this
    # thread, which has the connection.
    result: CallResult = async_to_sync(_send, force_new_loop=True)(request, model, tool_name, timeout)
    if flow_id is not None and budget is not None:
        add_spending([(flow_id, result.usage.total, result.usage.cost or Decimal(0))])
    return result


async def _send(request: dict[str, Any], model: str, tool_name: str, timeout: float) -> CallResult:
    provider, _ = build_providers().split(model)
    gate = create_gate(owner=str(Owner.of_this_process()), ask=_ask)
    try:
        await gate.refresh()
        permit = await gate.enter({**request, "model": model})
        if isinstance(permit, Closed):
            raise NotSentError(_explain_limit(permit))
        used: TokenUsage | None = None
        began = time.monotonic()
        client = create_client(provider)
        try:
            found = await client.complete(request, idempotency_key=f"try-{uuid4().hex}", timeout=timeout)
            reply = read_reply(found.body, tool_name=tool_name, api=find_api(request))
            used = reply.usage if reply.usage.reported else None
            priced = price_call(
                reply.model or request["model"], reply.usage, provider=provider, service_tier=reply.service_tier
            )
            return CallResult(reply, None, priced, time.monotonic() - began)
        except ModelError as error:
            return CallResult(None, error, UNREPORTED_USAGE, time.monotonic() - began)
        finally:
            permit.leave(used)
            await client.close()
    finally:
        await gate.close()


def _ask(question: Callable[[], _Result], /) -> Awaitable[_Result]:
    return sync_to_async(question, thread_sensitive=True)()


def _explain_limit(closed: Closed) -> str:
    wait = max(1, math.ceil((closed.until - datetime.now(UTC)).total_seconds()))
    sentence = closed.sentence[:1].lower() + closed.sentence[1:]
    return f"Nothing was sent: a call now {sentence} Try again in {describe_seconds(wait)}."


def find_timeout(step_limit: int | None) -> float:
    """Seconds that the call of a step with this time limit may take."""
    longest = float(settings.TOOLFLOW_CALL_TIMEOUT)
    return longest if step_limit is None else min(longest, step_limit)
