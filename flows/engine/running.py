"""Running a flow from a script: one call, no database."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flows.engine.clock import Clock, SystemClock
from flows.engine.errors import FlowWarning
from flows.engine.execution import DEFAULT_CALL_TIMEOUT, Execution, NullRecorder, Pricing, Recorder
from flows.engine.history import History
from flows.engine.plugin_calls import copy_json
from flows.engine.plugins import Registry
from flows.engine.plugins import registry as default_registry
from flows.engine.pricing import price_usage
from flows.engine.providers import ModelClient, find_providers
from flows.engine.redaction import Redactor
from flows.engine.result import RunResult
from flows.engine.schemas import parse_input
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import find_warnings, prepare_spec
from flows.engine.time_limits import DEFAULT_PLUGIN_TIMEOUT

DEFAULT_MODEL = "gpt-5-mini"
SCRIPT_RETRY_WINDOW = 60
"""Seconds; the retry window of steps that set none, where a script waits for the result."""


async def run_flow(
    flow: FlowSpec,
    input: dict[str, Any],
    *,
    client: ModelClient,
    clients: Mapping[str, ModelClient] | None = None,
    defaults: ModelSettings | None = None,
    registry: Registry = default_registry,
    recorder: Recorder | None = None,
    clock: Clock | None = None,
    call_timeout: float = DEFAULT_CALL_TIMEOUT,
    plugin_timeout: float = DEFAULT_PLUGIN_TIMEOUT,
    price: Pricing = price_usage,
    include_all_attempts: bool = True,
    include_token_usage: bool = True,
) -> RunResult:
    """Run ``flow`` on ``input`` to its end and give its result.

    Models are asked by ``client``, those named ``provider:model`` by the one of that name in ``clients``.
    ``defaults`` are the model settings where neither step nor flow says otherwise; ``call_timeout`` and
    ``plugin_timeout`` are in seconds; ``price`` puts a cost to what a call used. Without ``include_all_attempts`` the
    result carries only each step's final attempt; without ``include_token_usage`` no usage is tracked. Calls without an
    answer are repeated for 60 seconds, unless a step sets its own ``retry_window``.

    Raises ``SpecError`` if the flow can't run as it is defined and ``InputError`` if the input doesn't fit. What a
    model or a provider does wrong is in the result. A ``FlowWarning`` says what is most likely not meant.
    """
    clients = clients or {}
    defaults = defaults or ModelSettings(model=DEFAULT_MODEL)
    providers = find_providers(client, clients)
    spec = prepare_spec(flow, registry=registry, defaults=defaults, providers=providers)
    spec = spec.with_retry_window(SCRIPT_RETRY_WINDOW)
    for problem in find_warnings(spec, default_model=defaults.model, providers=providers):
        warnings.warn(str(problem), FlowWarning, stacklevel=2)
    clock = clock or SystemClock()
    has_budget = spec.token_budget is not None or spec.cost_budget is not None
    execution = Execution(
        spec=spec,
        client=client,
        clients=clients,
        registry=registry,
        recorder=recorder or NullRecorder(),
        clock=clock,
        deadline=None if spec.time_limit is None else clock.now() + timedelta(seconds=spec.time_limit),
        call_timeout=call_timeout,
        plugin_timeout=plugin_timeout,
        price=price,
        # A budget is kept whether or not the figures are shown.
        track_usage=include_token_usage or has_budget,
    )
    # A copy: what the caller does with its own input changes no history.
    history = History.begin(copy_json(parse_input(input, spec.input_schema)), run_id=uuid.uuid4().hex)
    end = await execution.execute(history)
    assert end.finish is not None, "an execution without should_stop ends with a finish"
    return RunResult.of(
        Redactor.of(spec.redact, end.history.initial_input).redact_history(end.history),
        end.finish,
        spec=spec,
        include_all_attempts=include_all_attempts,
        include_token_usage=include_token_usage,
    )


def run_flow_sync(flow: FlowSpec, input: dict[str, Any], **options: Any) -> RunResult:
    """``run_flow`` for scripts without an event loop; takes the same options."""
    return asyncio.run(run_flow(flow, input, **options))
