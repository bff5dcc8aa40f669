"""Requests that started runs and belong to a trace of somebody else: a span there that leads to the traces of the runs.

A run has a trace of its own, since it may last for days and be taken up by many workers. Whoever sends ``traceparent``
finds the way from the own trace to it by the links of this span.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import islice

from django.conf import settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from flows import __version__
from runs.models import Run, TrailEntry
from runs.stored_history import make_run_id
from runs.tracing.provider import make_provider
from runs.tracing.sampling import make_span_context
from runs.trail.actions import TrailAction

logger = logging.getLogger(__name__)

LOOK_BACK = 200
"""Entries of the trail among which those of a request are looked for, the newest."""
MOST_LINKS = 100

_lock = threading.Lock()
_provider: TracerProvider | None = None


def trace_request(*, headers: Mapping[str, str], request_id: str, name: str, status: int, seconds: float) -> None:
    """Tell of a request that was just answered, if its trace is recorded and it started runs. Raises nothing.

    ``headers`` are its own, ``name`` is its method and route, ``seconds`` is how long it took.
    """
    try:
        carrier = {name.lower(): value for name, value in headers.items()}
        context = TraceContextTextMapPropagator().extract(carrier)
        above = trace.get_current_span(context).get_span_context()
        if not above.is_valid or not above.trace_flags.sampled or not (runs := list(_find_runs(request_id))):
            return
        ended_at = time.time_ns()
        provider = _find_provider()
        contexts = (make_span_context(provider.sampler, make_run_id(Run(pk=run_id))) for run_id in runs)
        # A link to what nobody tells of would lead nowhere.
        links = islice((Link(context) for context in contexts if context.trace_flags.sampled), MOST_LINKS)
        span = provider.get_tracer("toolflow", __version__).start_span(
            name,
            context,
            SpanKind.SERVER,
            {"http.response.status_code": status, "toolflow.request_id": request_id, "toolflow.runs": len(runs)},
            list(links),
            start_time=ended_at - int(seconds * 1e9),
        )
        span.end(ended_at)
    except Exception:
        logger.exception("The span of a request could not be made.")


def _find_runs(request_id: str) -> Iterator[int]:
    """The numbers of the runs that a request has started: the trail knows."""
    newest = TrailEntry.objects.order_by("-pk").values_list("request_id", "action", "object_id", "details")[:LOOK_BACK]
    for of_request, action, object_id, details in newest:
        if of_request == request_id and action == TrailAction.RUN_STARTED:
            yield int(object_id)
        elif of_request == request_id and action == TrailAction.RUNS_STARTED:
            yield from range(details["first"], details["last"] + 1)


def _find_provider() -> TracerProvider:
    """The provider of this process, made when it is first needed; its thread doesn't outlive the process."""
    global _provider  # noqa: PLW0603  # one for all threads of the process
    with _lock:
        if _provider is None:
            _provider = make_provider(settings.TOOLFLOW_TRACES)
        return _provider


def close_provider() -> None:
    """Hand over what is left, and begin anew with the next request."""
    global _provider  # noqa: PLW0603  # see above
    with _lock:
        if _provider is not None:
            _provider.shutdown()
        _provider = None
