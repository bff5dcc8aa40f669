"""Telling a collector of runs, as OTLP over HTTP.

A span is made when what it tells of is over and stored, with the times that are stored: an attempt by the worker that
made it, a run and its steps by whoever counts the run. So a worker that is killed loses what it had under way, and at
most a second of what was done; and a run that waits for days has no span open meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Collection
from datetime import datetime
from itertools import groupby
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import NonRecordingSpan, SpanKind, Status, StatusCode

from flows import __version__
from flows.engine.history import Attempt, Outcome
from flows.engine.spec import StepSpec
from flows.providers import build_providers
from runs.models import Attempt as AttemptRow
from runs.models import Run, RunStatus
from runs.stored_history import make_run_id
from runs.tracing import attributes as names
from runs.tracing.attributes import Attributes
from runs.tracing.ids import GivenIds, make_span_id, make_trace_id
from runs.tracing.provider import make_provider
from runs.tracing.sampling import make_span_context

logger = logging.getLogger(__name__)

CLOSING_PATIENCE = 3.0
"""Seconds that a collector has to take the last spans of a drain."""

UNSEEN = (Outcome.INTERRUPTED.value, Outcome.CANCELLED.value)
"""Outcomes that no worker brings: somebody else ended these attempts."""


class RunTracer:
    """Makes spans and hands them over. Nothing that goes wrong with that reaches a run."""

    def __init__(self, endpoint: str, *, with_content: bool = False) -> None:
        """``endpoint`` is the collector's address without a path; ``with_content`` adds requests and outputs."""
        self._with_content = with_content
        self._providers = build_providers()
        self._ids = GivenIds()
        self._provider = make_provider(endpoint, id_generator=self._ids)
        self._tracer = self._provider.get_tracer("toolflow", __version__)

    def trace_attempt(self, run: Run, step: StepSpec, attempt: Attempt) -> None:
        """Send the span of an attempt of ``step`` that is over."""
        try:
            self._trace_attempt(run, step, attempt)
        except Exception:
            logger.exception("The span of an attempt could not be made.")

    def trace_ended_runs(self, run_ids: Collection[int]) -> None:
        """Tell of runs that are over, and of their steps. Reads them from the database, with two queries."""
        try:
            rows = (
                AttemptRow.objects.filter(step__run__in=run_ids)
                .order_by("step__run", "step__index", "number")
                .values_list(
                    "step__run", "step__index", "step__name", "number", "outcome", "started_at", "ended_at", named=True
                )
            )
            attempts = {run_id: list(found) for run_id, found in groupby(rows, key=lambda row: row.step__run)}
            for run in Run.objects.filter(pk__in=run_ids).select_related("flow", "version").defer("input"):
                self._trace_run(run, attempts.get(run.pk, []))
        except Exception:
            logger.exception("The spans of runs could not be made.")

    async def close(self) -> None:
        """Hand over what is left; gives up after ``CLOSING_PATIENCE``."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            # A loop that is over needs to know nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        # A daemon, which a collector that doesn't answer can't make anybody wait for.
        threading.Thread(target=shut_down, name="tracing", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSING_PATIENCE):
                await done.wait()
        except TimeoutError:
            logger.warning("The collector of traces takes too long; the last spans may be lost.")

    def _trace_attempt(self, run: Run, step: StepSpec, attempt: Attempt) -> None:
        described: Attributes = {
            names.RUN: run.pk,
            names.STEP: attempt.step,
            names.STEP_NAME: step.name,
            names.ATTEMPT: attempt.number,
            names.OUTCOME: attempt.outcome.value,
        }
        name, kind = f"compute {step.name}", SpanKind.INTERNAL
        if attempt.request is not None:
            name, kind = f"chat {attempt.request.get('model', '')}", SpanKind.CLIENT
            described |= names.describe_call(attempt, self._providers.split(step.model or "")[0])
            if self._with_content:
                described |= names.describe_content(attempt)
        is_errored = attempt.error is not None
        self._emit(
            make_run_id(run),
            (attempt.step, attempt.number),
            name,
            (attempt.started_at, attempt.ended_at),
            described,
            kind=kind,
            status=StatusCode.ERROR if is_errored else StatusCode.UNSET,
            event=names.count_issues(attempt),
        )

    def _trace_run(self, run: Run, attempts: list[Any]) -> None:
        run_id = make_run_id(run)
        for step, found in groupby(attempts, key=lambda row: row.step__index):
            self._trace_step(run, run_id, step, list(found))
        began = [row.started_at for row in attempts if row.started_at is not None]
        is_well = run.status == RunStatus.SUCCEEDED
        described: Attributes = {
            gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.INVOKE_WORKFLOW.value,
            gen_ai.GEN_AI_WORKFLOW_NAME: run.flow.name,
            names.RUN: run.pk,
            names.FLOW: run.flow.name,
            names.VERSION: run.version.number,
            names.STATUS: run.status,
            names.END_REASON: run.end_reason,
            "toolflow.run.attempts": run.attempt_count,
            "toolflow.run.retries": run.retry_count,
            "toolflow.run.total_tokens": run.total_tokens,
            "toolflow.run.interrupted": sum(row.outcome == Outcome.INTERRUPTED for row in attempts),
        }
        if run.cost is not None:
            described[names.COST] = float(run.cost)
        if not is_well:
            described[error_attributes.ERROR_TYPE] = run.end_reason
        self._emit(
            run_id,
            (),
            f"invoke_workflow {run.flow.name}",
            (min([run.started_at or run.created_at, *began]), run.ended_at),
            described,
            status=StatusCode.OK if is_well else StatusCode.ERROR,
        )

    def _trace_step(self, run: Run, run_id: str, step: int, attempts: list[Any]) -> None:
        deciding = next((row for row in reversed(attempts) if row.outcome != Outcome.INTERRUPTED), attempts[-1])
        described: Attributes = {names.RUN: run.pk, names.STEP: step, names.STEP_NAME: attempts[0].step__name}
        for row in attempts:
            if row.outcome in UNSEEN:
                self._emit(
                    run_id,
                    (step, row.number),
                    f"{row.outcome} attempt",
                    (row.started_at, row.ended_at),
                    {**described, names.ATTEMPT: row.number, names.OUTCOME: row.outcome},
                    status=StatusCode.ERROR,
                )
        self._emit(
            run_id,
            (step,),
            f"step {attempts[0].step__name}",
            (attempts[0].started_at, max((row.ended_at for row in attempts if row.ended_at), default=None)),
            {**described, "toolflow.step.attempts": len(attempts), names.OUTCOME: deciding.outcome},
            status=StatusCode.OK if deciding.outcome == Outcome.PASSED else StatusCode.ERROR,
        )

    def _emit(
        self,
        run_id: str,
        place: tuple[int, ...],
        name: str,
        times: tuple[datetime | None, datetime | None],
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        status: StatusCode = StatusCode.UNSET,
        event: Attributes | None = None,
    ) -> None:
        """Make the span of a run (no ``place``), of a step or of an attempt, below the one that it belongs to."""
        trace_id = make_trace_id(run_id)
        self._ids.give(trace_id, make_span_id(run_id, *place))
        context = Context()
        if place:
            above = make_span_context(self._provider.sampler, run_id, *place[:-1])
            context = trace.set_span_in_context(NonRecordingSpan(above), context)
        start, end = times
        began_at = _count_nanoseconds(start)
        ended_at = _count_nanoseconds(end) or began_at
        span = self._tracer.start_span(name, context, kind, attributes, start_time=began_at or ended_at)
        if event:
            span.add_event(names.ISSUES, event, timestamp=ended_at)
        span.set_status(Status(status))
        # Times of a database and of a host may differ.
        span.end(max(filter(None, (began_at, ended_at)), default=None))


def _count_nanoseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000) * 1_000
