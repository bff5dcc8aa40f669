"""Traces of runs for OpenTelemetry: run > step > attempt. Nothing of it is loaded where no collector is set."""

from __future__ import annotations

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
