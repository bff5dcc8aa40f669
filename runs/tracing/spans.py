"""Spans for an OpenTelemetry collector, as OTLP over HTTP: ended runs, and requests that started runs.

The worker that counts an ended run sends its spans, with the times that are stored: a run that waits for days has no
span open meanwhile, and it doesn't matter which workers had it. The ids of a run's own span follow from the run, so
that a request can link to it before it exists.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from flows import __version__
from flows.engine.history import Attempt, History, Outcome
from flows.engine.model_api import find_max_tokens, find_tool, list_messages
from flows.engine.providers import Provider
from flows.engine.settling import find_called_step, find_deciding
from flows.providers import build_providers
from runs.audit_log.events import AuditAction
from runs.models import AuditEntry, Run, RunStatus
from runs.stored_history import load_history, make_run_id

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 3.0
"""Seconds that a collector has to take the last spans of a drain."""
MAX_SCANNED_ENTRIES = 200
"""The newest entries of the audit log among which those of a request are found."""

Attributes = dict[str, Any]


class RunTracer:
    """Sends the spans of ended runs. Nothing that goes wrong with that reaches a run."""

    def __init__(self, endpoint: str, *, with_content: bool = False) -> None:
        """``endpoint`` is the collector's address without a path; ``with_content`` adds requests and outputs."""
        self._with_content = with_content
        self._models = build_providers()
        self._ids = _RunIds()
        self._provider = _build_provider(endpoint, id_generator=self._ids)
        self._tracer = self._provider.get_tracer("toolflow", __version__)

    def trace_ended_runs(self, run_ids: Collection[int]) -> None:
        """Send the spans of these runs, their steps and attempts, which are read from the database."""
        try:
            for run in Run.objects.filter(pk__in=run_ids).select_related("flow", "version").defer("input"):
                self._trace_run(run)
        except Exception:
            logger.exception("The spans of runs could not be sent.")

    async def close(self) -> None:
        """Send what is left, for up to ``CLOSE_TIMEOUT``."""
        # A daemon: a collector that doesn't answer can't keep the process from ending.
        thread = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, CLOSE_TIMEOUT)
        if thread.is_alive():
            logger.warning("The collector of traces takes too long; the last spans may be lost.")

    def _trace_run(self, run: Run) -> None:
        succeeded = run.status == RunStatus.SUCCEEDED
        self._ids.next_run = make_run_id(run)
        name = f"invoke_workflow {run.flow.name}"
        with self._span(name, None, (run.started_at or run.created_at, run.ended_at), succeeded=succeeded) as span:
            if not span.is_recording():
                return
            history = load_history(run, input={})
            span.set_attributes(_describe_run(run, history))
            # The first is the run's input.
            for step in range(1, len(history.steps)):
                self._trace_step(run, step, history.attempts(step), span)

    def _trace_step(self, run: Run, step: int, attempts: Sequence[Attempt], run_span: Span) -> None:
        spec = run.version.flow_spec.step(step)
        deciding = find_deciding(spec, attempts) or attempts[-1]
        times = attempts[0].started_at, max((one.ended_at for one in attempts if one.ended_at), default=None)
        about: Attributes = {"toolflow.run": run.pk, "toolflow.step": step, "toolflow.step.name": spec.name}
        passed = deciding.outcome is Outcome.PASSED
        with self._span(f"step {spec.name}", run_span, times, succeeded=passed) as span:
            outcome = {"toolflow.step.attempts": len(attempts), "toolflow.attempt.outcome": deciding.outcome.value}
            span.set_attributes({**about, **outcome})
            for place, attempt in enumerate(attempts):
                provider = self._models.split(find_called_step(spec, attempts[:place]).model or "")[0]
                self._trace_attempt(attempt, span, spec.name, about, provider)

    def _trace_attempt(self, attempt: Attempt, above: Span, step: str, about: Attributes, provider: Provider) -> None:
        request, kind = attempt.request, SpanKind.INTERNAL
        lost = attempt.outcome in {Outcome.INTERRUPTED, Outcome.CANCELLED}
        if lost:
            name = f"{attempt.outcome.value} attempt"
        elif request is None:
            name = f"compute {step}"
        else:
            name, kind = f"chat {request.get('model', '')}", SpanKind.CLIENT
        succeeded = False if lost or attempt.error is not None else None
        with self._span(name, above, (attempt.started_at, attempt.ended_at), kind=kind, succeeded=succeeded) as span:
            span.set_attributes(about)
            span.set_attributes({"toolflow.attempt": attempt.number, "toolflow.attempt.outcome": attempt.outcome.value})
            if kind is SpanKind.CLIENT:
                span.set_attributes(describe_call(attempt, provider))
                if self._with_content:
                    span.set_attributes(describe_content(attempt))
            if attempt.issues:
                counts = Counter(f"toolflow.issues.{issue.severity.value}" for issue in attempt.issues)
                span.add_event("toolflow.issues", dict(counts), timestamp=_to_nanoseconds(attempt.ended_at))

    @contextmanager
    def _span(
        self,
        name: str,
        above: Span | None,
        times: tuple[datetime | None, datetime | None],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        succeeded: bool | None,
    ) -> Iterator[Span]:
        """A span between two stored times, below another one; without success or failure its status stays unset."""
        start, end = map(_to_nanoseconds, times)
        context = trace.set_span_in_context(above, Context()) if above else Context()
        span = self._tracer.start_span(name, context, kind, start_time=start or end)
        if succeeded is not None:
            span.set_status(StatusCode.OK if succeeded else StatusCode.ERROR)
        yield span
        # Times of a database and of a host may differ.
        span.end(max(filter(None, (start, end)), default=None))


class _RunIds(RandomIdGenerator):
    """Random ids, but for the span of ``next_run``, whose ids follow from the run."""

    next_run = ""

    def generate_trace_id(self) -> int:
        return build_ids(self.next_run)[0]

    def generate_span_id(self) -> int:
        run, self.next_run = self.next_run, ""
        return build_ids(run)[1] if run else super().generate_span_id()


def build_ids(run_id: str) -> tuple[int, int]:
    """The ids of the trace and the span of a run, given by ``make_run_id``."""
    digest = sha256(run_id.encode()).digest()
    return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")


def _describe_run(run: Run, history: History) -> Attributes:
    found: Attributes = {
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.INVOKE_WORKFLOW.value,
        gen_ai.GEN_AI_WORKFLOW_NAME: run.flow.name,
        "toolflow.run": run.pk,
        "toolflow.flow": run.flow.name,
        "toolflow.version": run.version.number,
        "toolflow.run.status": run.status,
        "toolflow.run.end_reason": run.end_reason,
        "toolflow.run.attempts": run.attempt_count,
        "toolflow.run.retries": run.retry_count,
        "toolflow.run.total_tokens": run.total_tokens,
        "toolflow.run.interrupted": sum(attempt.outcome is Outcome.INTERRUPTED for attempt in history),
    }
    if run.cost is not None:
        found["toolflow.cost_usd"] = float(run.cost)
    if run.status != RunStatus.SUCCEEDED:
        found[error_attributes.ERROR_TYPE] = run.end_reason
    return found


def describe_call(attempt: Attempt, provider: Provider) -> Attributes:
    """The call of an attempt in the semantic conventions for generative AI, without what was said."""
    request, usage = attempt.request or {}, attempt.usage
    address = urlsplit("" if provider.is_simulated else provider.base_url)
    found: Attributes = {
        # A default provider that speaks OpenAI's language counts as OpenAI; the address says which server it is.
        gen_ai.GEN_AI_PROVIDER_NAME: "simulated" if provider.is_simulated else provider.name or "openai",
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.CHAT.value,
        gen_ai.GEN_AI_OUTPUT_TYPE: gen_ai.GenAiOutputTypeValues.JSON.value,
        gen_ai.GEN_AI_REQUEST_MODEL: request.get("model"),
        gen_ai.GEN_AI_REQUEST_TEMPERATURE: request.get("temperature"),
        gen_ai.GEN_AI_REQUEST_MAX_TOKENS: find_max_tokens(request),
        gen_ai.GEN_AI_RESPONSE_MODEL: attempt.model and attempt.model.removeprefix(provider.qualify("")),
        gen_ai.GEN_AI_RESPONSE_ID: attempt.response_id,
        gen_ai.GEN_AI_RESPONSE_FINISH_REASONS: [attempt.finish_reason] if attempt.finish_reason else None,
        "toolflow.cost_usd": float(usage.cost) if usage.cost is not None else None,
    }
    if address.hostname:
        found[server_attributes.SERVER_ADDRESS] = address.hostname
        found[server_attributes.SERVER_PORT] = address.port or (443 if address.scheme == "https" else 80)
    if usage.reported:
        found |= {
            gen_ai.GEN_AI_USAGE_INPUT_TOKENS: usage.prompt,
            gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: usage.completion,
            gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: usage.cached,
            gen_ai.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning,
        }
    if attempt.error is not None:
        found[error_attributes.ERROR_TYPE] = attempt.error.code.value
        found[http_attributes.HTTP_RESPONSE_STATUS_CODE] = attempt.error.status
    return {name: value for name, value in found.items() if value is not None}


def describe_content(attempt: Attempt) -> Attributes:
    """What was sent to the model and what came back, as the history keeps it."""
    request = attempt.request or {}
    messages = [
        {"role": message.get("role", ""), "parts": [{"type": "text", "content": message.get("content")}]}
        for message in list_messages(request)
    ]
    found = {gen_ai.GEN_AI_INPUT_MESSAGES: messages, gen_ai.GEN_AI_TOOL_DEFINITIONS: request.get("tools", [])}
    output = attempt.output or attempt.raw_output
    if output is not None:
        part = {"type": "tool_call", "name": find_tool(request).get("name", ""), "arguments": output}
        found[gen_ai.GEN_AI_OUTPUT_MESSAGES] = [
            {"role": "assistant", "parts": [part], "finish_reason": attempt.finish_reason or ""}
        ]
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items()}


def trace_request(*, headers: Mapping[str, str], request_id: str, name: str, status: int, seconds: float) -> None:
    """Send a span of an answered request to the caller's own trace, with links to the traces of the runs it started.

    Nothing is sent if the caller doesn't record its trace, or no run was started. Raises nothing.
    """
    try:
        carrier = {name.lower(): value for name, value in headers.items()}
        context = TraceContextTextMapPropagator().extract(carrier)
        above = trace.get_current_span(context).get_span_context()
        if not above.is_valid or not above.trace_flags.sampled or not (runs := list(_fetch_runs(request_id))):
            return
        ended_at = time.time_ns()
        span = (
            get_request_provider()
            .get_tracer("toolflow", __version__)
            .start_span(
                name,
                context,
                SpanKind.SERVER,
                {"http.response.status_code": status, "toolflow.request_id": request_id, "toolflow.runs": len(runs)},
                [_build_link(run_id) for run_id in runs],
                start_time=ended_at - int(seconds * 1e9),
            )
        )
        span.end(ended_at)
    except Exception:
        logger.exception("The span of a request could not be sent.")


@cache
def get_request_provider() -> TracerProvider:
    """What sends the spans of requests of this process."""
    return _build_provider(settings.TOOLFLOW_TRACES)


def _fetch_runs(request_id: str) -> Iterator[int]:
    """The numbers of the runs that a request has started, by the audit log."""
    entries = AuditEntry.objects.order_by("-pk").values_list("request_id", "action", "object_id", "details")
    for of_request, action, object_id, details in entries[:MAX_SCANNED_ENTRIES]:
        if of_request == request_id and action == AuditAction.RUN_STARTED:
            yield int(object_id)
        elif of_request == request_id and action == AuditAction.RUNS_STARTED:
            yield from range(details["first"], details["last"] + 1)


def _build_link(run_id: int) -> Link:
    """The link to the span of a run, which the worker that counts it sends."""
    trace_id, span_id = build_ids(make_run_id(Run(pk=run_id)))
    return Link(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))


def _build_provider(endpoint: str, **options: Any) -> TracerProvider:
    """What sends spans to the collector at ``endpoint``; all else is set by the ``OTEL_…`` variables."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "toolflow"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False, **options)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    return provider


def _to_nanoseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000) * 1_000
