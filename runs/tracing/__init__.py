"""Traces of runs for OpenTelemetry: run > step > attempt. Nothing of it is loaded where no collector is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from runs.tracing.run_tracer import RunTracer


def create_tracer() -> RunTracer | None:
    """What tells the collector of runs; None where none is set. Whoever creates it closes it."""
    if not settings.TOOLFLOW_TRACES:
        return None
    from runs.tracing.run_tracer import RunTracer

    return RunTracer(settings.TOOLFLOW_TRACES, with_content=settings.TOOLFLOW_TRACE_CONTENT)


def trace_request(*, headers: Mapping[str, str], request_id: str, name: str, status: int, seconds: float) -> None:
    """Tell the collector of a request that started runs for somebody who sent ``traceparent``; see there."""
    if settings.TOOLFLOW_TRACES and "traceparent" in headers:
        from runs.tracing import starting_requests

        starting_requests.trace_request(
            headers=headers, request_id=request_id, name=name, status=status, seconds=seconds
        )
