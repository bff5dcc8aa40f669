"""Whether a run is told of: the id of its trace decides, so that all processes that ever have the run decide alike."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from runs.tracing.ids import make_span_id, make_trace_id


def make_span_context(sampler: Sampler, run_id: str, *place: int) -> SpanContext:
    """What leads to the span of a run, of a step of it by its number, or of an attempt by step and number.

    Its flag says what ``sampler`` decides for the first span of the trace, which is made last, when the run is over:
    samplers that go by what stands above a span find the same decision on all spans of the run.
    """
    trace_id = make_trace_id(run_id)
    result = sampler.should_sample(Context(), trace_id, "invoke_workflow", SpanKind.INTERNAL)
    flag = TraceFlags.SAMPLED if result.decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT
    return SpanContext(trace_id, make_span_id(run_id, *place), is_remote=True, trace_flags=TraceFlags(flag))
