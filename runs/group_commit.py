"""Storing what many runs did in one transaction.

A commit costs the same for one attempt as for fifty, and one writer at a time is all that SQLite has. So what the runs
of a drain have to store is gathered and written together: every statement covers all of it.

Each write is fenced by the epoch under which its run was claimed, and numbered: one that is sent again, because nobody
knows whether the last commit arrived, is recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import F

from flows.engine import history as engine
from flows.engine.execution import Received, Start
from flows.engine.planner import Finish
from flows.engine.reply import ToolReply
from runs.facets import Facet, add_facets
from runs.models import Attempt, AttemptRequest, Issue, Run, RunStatus, Step, TokenUsage
from runs.models.run import end_expressions
from runs.prepared_sql import PreparedInsert, PreparedUpdate
from runs.spending import add_spending
from runs.stored_history import list_issue_values

SHORT_TEXT = 200
"""Characters that columns for names and ids of the provider hold; longer ones are cut."""


class LeaseLostError(Exception):
    """The run is not held under this epoch any more: another worker has it, or it was ended."""


@dataclass(frozen=True, slots=True)
class RunWrite:
    """What one run has to store, as a whole or not at all. A run has at most one under way."""

    run_id: int
    flow_id: int
    epoch: int
    number: int
    """Counts the writes of the run, over all its workers."""
    totals: Mapping[str, Any]
    """The run's totals after this write, by column."""
    ended: engine.Attempt | None = None
    received: Received | None = None
    running_row: int | None = None
    """The row of the attempt that ended or received its reply: it was made when that began."""
    usage: engine.TokenUsage | None = None
    """What the attempt used, in the write that brings it first."""
    begun: Start | None = None
    begun_step: int | None = None
    """The row of the step of the attempt that begins; None if this is the step's first attempt."""
    begun_step_name: str = ""
    finish: Finish | None = None
    facets: Collection[Facet] = ()
    """What the run can be found by from now on."""
    has_flow_budget: bool = False
    """Whether the flow has a budget that all its runs share."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where a write has put the attempt that begins."""

    step_row: int | None = None
    attempt_row: int | None = None


TOTALS = (
    "steps_passed",
    "attempt_count",
    "retry_count",
    "issues_low",
    "issues_medium",
    "issues_high",
    "issues_critical",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost",
    "unpriced_count",
    "crashes",
)


def commit_writes(writes: Sequence[RunWrite]) -> list[Written | LeaseLostError]:
    """Store ``writes`` in one transaction; says of each where it went, or that its run is no longer held.

    Raises the database's error if the transaction fails: then nothing is stored, unless the connection broke in the
    commit. Sending the same writes again is safe.
    """
    results: dict[int, Written | LeaseLostError] = {}
    with transaction.atomic():
        held = []
        rows = {
            run_id: state
            for run_id, *state in Run.objects.filter(pk__in=[write.run_id for write in writes])
            .order_by("pk")
            .select_for_update()
            .values_list("pk", "epoch", "status", "record_number")
        }
        for write in writes:
            epoch, status, number = rows.get(write.run_id, (None, None, None))
            if epoch == write.epoch and number == write.number:
                results[write.run_id] = _find_written(write)
            elif epoch == write.epoch and status == RunStatus.RUNNING:
                held.append(write)
            else:
                results[write.run_id] = LeaseLostError(
                    f"Run {write.run_id} is no longer held under epoch {write.epoch}."
                )
        if held:
            results |= _store(held)
    return [results[write.run_id] for write in writes]


def _find_written(write: RunWrite) -> Written:
    """Where an earlier commit of the same write has put things."""
    if write.begun is None:
        return Written()
    row = Attempt.objects.filter(
        step__run=write.run_id, step__index=write.begun.step, number=write.begun.number
    ).values_list("step_id", "pk")
    return Written(*row.get())


def _store(writes: list[RunWrite]) -> dict[int, Written | LeaseLostError]:
    begun = [write for write in writes if write.begun is not None]
    step_rows = _make_steps(begun)
    attempts = _BEGIN_ATTEMPT.execute_returning(
        _begin_values(write.begun, step_rows[write.run_id]) for write in begun if write.begun is not None
    )
    written = {
        write.run_id: Written(step_rows[write.run_id], attempt) for write, attempt in zip(begun, attempts, strict=True)
    }
    _STORE_REQUEST.execute(
        {"attempt": attempt, "body": write.begun.request}
        for write, attempt in zip(begun, attempts, strict=True)
        if write.begun is not None and write.begun.request is not None
    )
    _RECEIVE_REPLY.execute(
        (write.running_row, _received_values(write.received))
        for write in writes
        if write.received is not None and write.running_row is not None
    )
    _end_attempts([(write.running_row, write.ended) for write in writes if write.ended is not None])
    _STORE_USAGE.execute(
        {"attempt": write.running_row, **write.usage.__dict__} for write in writes if write.usage is not None
    )
    _update_runs(writes)
    add_facets((write.run_id, facet) for write in writes for facet in write.facets)
    add_spending(
        (write.flow_id, write.usage.total, write.usage.cost or Decimal(0))
        for write in writes
        if write.has_flow_budget and write.usage is not None
    )
    return {write.run_id: written.get(write.run_id, Written()) for write in writes}


def _make_steps(begun: list[RunWrite]) -> dict[int, int]:
    """The row of the step of every attempt that begins, by run."""
    rows = {write.run_id: write.begun_step for write in begun if write.begun_step is not None}
    new = [write for write in begun if write.begun_step is None]
    steps = _BEGIN_STEP.execute_returning(
        {"run": write.run_id, "index": write.begun.step, "name": write.begun_step_name}
        for write in new
        if write.begun is not None
    )
    return rows | {write.run_id: step for write, step in zip(new, steps, strict=True)}


_BEGIN_STEP = PreparedInsert(Step, "run", "index", "name")
_BEGIN_ATTEMPT = PreparedInsert(Attempt, "step", "number", "input", "plugins", "started_at")
_STORE_REQUEST = PreparedInsert(AttemptRequest, "attempt", "body")
_STORE_USAGE = PreparedInsert(TokenUsage, "attempt", *engine.TokenUsage.model_fields)
_STORE_ISSUE = PreparedInsert(
    Issue,
    "attempt",
    "position",
    "code",
    "severity",
    "description",
    "audit",
    "path",
    "context",
    "suggestions",
    "added_fields",
)


def _begin_values(start: Start, step_row: int) -> dict[str, Any]:
    return {
        "step": step_row,
        "number": start.number,
        "input": start.input,
        "plugins": start.plugins,
        "started_at": start.started_at,
    }


_END_ATTEMPT = PreparedUpdate(
    Attempt,
    "outcome",
    "output",
    "raw_output",
    "model",
    "response_id",
    "finish_reason",
    "error",
    "failure_reason",
    "plugins",
    "received",
    "ended_at",
)
_RECEIVE_REPLY = PreparedUpdate(Attempt, "received", "model", "response_id", "finish_reason")


def _end_attempts(ended: list[tuple[int | None, engine.Attempt]]) -> None:
    for row, attempt in ended:
        if row is None:
            raise ValueError(f"Attempt {attempt.number} of step {attempt.step} ends without having begun here.")
    _END_ATTEMPT.execute((row, _end_values(attempt)) for row, attempt in ended if row is not None)
    _STORE_ISSUE.execute(issue for row, attempt in ended for issue in list_issue_values(row, attempt.issues))


def _end_values(ended: engine.Attempt) -> dict[str, Any]:
    return {
        "outcome": ended.outcome.value,
        "output": ended.output,
        "raw_output": ended.raw_output,
        **_reply_values(ended),
        "error": ended.error.model_dump(mode="json") if ended.error else None,
        "failure_reason": ended.failure_reason or "",
        "plugins": ended.plugins,
        "received": None,
        "ended_at": ended.ended_at,
    }


def _received_values(received: Received) -> dict[str, Any]:
    return {"received": received.reply.arguments, **_reply_values(received.reply)}


def _reply_values(reply: engine.Attempt | ToolReply) -> dict[str, Any]:
    return {
        "model": (reply.model or "")[:SHORT_TEXT],
        "response_id": (reply.response_id or "")[:SHORT_TEXT],
        "finish_reason": (reply.finish_reason or "")[:50],
    }


_UPDATE_RUN = PreparedUpdate(Run, "record_number", *TOTALS, revision=F("revision") + 1)
_FINISH_RUN = PreparedUpdate(
    Run,
    "record_number",
    *TOTALS,
    "status",
    "end_reason",
    "end_sentence",
    "blocking_step",
    "blocking_attempt",
    **end_expressions(),
)


def _update_runs(writes: list[RunWrite]) -> None:
    _UPDATE_RUN.execute(
        (write.run_id, {"record_number": write.number, **write.totals}) for write in writes if write.finish is None
    )
    _FINISH_RUN.execute(
        (write.run_id, {"record_number": write.number, **write.totals, **_finish_values(write.finish)})
        for write in writes
        if write.finish is not None
    )


def _finish_values(finish: Finish) -> dict[str, Any]:
    step, attempt = finish.blocking or (None, None)
    return {
        "status": finish.status.value,
        "end_reason": finish.reason.value,
        "end_sentence": finish.sentence,
        "blocking_step": step,
        "blocking_attempt": attempt,
    }
