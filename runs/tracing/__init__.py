"""Traces for OpenTelemetry. Nothing of it is loaded where no collector is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings

if TYPE_CHECKING:
    from runs.tracing.spans import RunTracer


def create_tracer() -> RunTracer | None:
    """What sends spans of runs to the collector; None without one. The caller closes it."""
    if not settings.TOOLFLOW_TRACES:
        return None
    from runs.tracing.spans import RunTracer

    return RunTracer(settings.TOOLFLOW_TRACES, with_content=settings.TOOLFLOW_TRACE_CONTENT)


def trace_request(*, headers: Mapping[str, str], **about: Any) -> None:
    """Send a span of a request that was just answered, if it started runs and brought ``traceparent``; never raises."""
    if settings.TOOLFLOW_TRACES and "traceparent" in headers:
        from runs.tracing import spans

        spans.trace_request(headers=headers, **about)
