"""Storing what many runs did in one transaction.

A commit costs the same for one attempt as for fifty, and one writer at a time is all that SQLite has. So what the runs
of a drain have to store is gathered and written together: every statement covers all of it.

Each write is fenced by the epoch under which its run was claimed, and numbered: one that is sent again, because it is
unknown whether the last commit arrived, is recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

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

MAX_TEXT_LENGTH = 200
"""Characters that columns for names and ids of the provider hold; longer ones are cut."""

TOTALS = (
    *("steps_passed", "attempt_count", "retry_count"),
    *("issues_low", "issues_medium", "issues_high", "issues_critical"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"),
    *("cost", "unpriced_count", "crashes"),
)
"""The columns of a run that its writes carry, as they are after each."""

_BEGIN_STEP = PreparedInsert(Step)
_BEGIN_ATTEMPT = PreparedInsert(Attempt)
_STORE_REQUEST = PreparedInsert(AttemptRequest)
_STORE_USAGE = PreparedInsert(TokenUsage)
_STORE_ISSUE = PreparedInsert(Issue)
_UPDATE_ATTEMPT = PreparedUpdate(Attempt)
_UPDATE_RUN = PreparedUpdate(Run, revision=F("revision") + 1)
_FINISH_RUN = PreparedUpdate(Run, **end_expressions())


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


class Written(NamedTuple):
    """Where a write has put the attempt that begins."""

    step_row: int | None = None
    attempt_row: int | None = None


def commit_writes(writes: Sequence[RunWrite]) -> list[Written | LeaseLostError]:
    """Store ``writes`` in one transaction; says of each where it went, or that its run is no longer held.

    Raises the database's error if the transaction fails: then nothing is stored, unless the connection broke in the
    commit. Sending the same writes again is safe.
    """
    results: dict[int, Written | LeaseLostError] = {}
    held = []
    with transaction.atomic():
        runs = Run.objects.filter(pk__in=[write.run_id for write in writes]).order_by("pk").select_for_update()
        rows = {pk: state for pk, *state in runs.values_list("pk", "epoch", "status", "record_number")}
        for write in writes:
            epoch, status, number = rows.get(write.run_id, (None, None, None))
            if epoch == write.epoch and number == write.number:
                results[write.run_id] = _load_written(write)
            elif epoch == write.epoch and status == RunStatus.RUNNING:
                held.append(write)
            else:
                sentence = f"Run {write.run_id} is no longer held under epoch {write.epoch}."
                results[write.run_id] = LeaseLostError(sentence)
        if held:
            results |= _begin_attempts(held)
            _update_attempts(held)
            _update_runs(held)
    return [results[write.run_id] for write in writes]


def _load_written(write: RunWrite) -> Written:
    """Where an earlier commit of the same write has put things."""
    if (begun := write.begun) is None:
        return Written()
    rows = Attempt.objects.filter(step__run=write.run_id, step__index=begun.step, number=begun.number)
    return Written(*rows.values_list("step_id", "pk").get())


def _begin_attempts(writes: list[RunWrite]) -> dict[int, Written]:
    """Store the attempts that begin; says of each write, by run, where they are."""
    begun = [(write, write.begun) for write in writes if write.begun is not None]
    new = [(write, start) for write, start in begun if write.begun_step is None]
    new_steps = _BEGIN_STEP.execute(
        ({"run": write.run_id, "index": start.step, "name": write.begun_step_name} for write, start in new),
        returns_keys=True,
    )
    steps = {write.run_id: write.begun_step for write, _ in begun if write.begun_step is not None}
    steps |= {write.run_id: step for (write, _), step in zip(new, new_steps, strict=True)}
    attempts = _BEGIN_ATTEMPT.execute(
        (
            {
                "step": steps[write.run_id],
                "number": start.number,
                "input": start.input,
                "plugins": start.plugins,
                "started_at": start.started_at,
            }
            for write, start in begun
        ),
        returns_keys=True,
    )
    _STORE_REQUEST.execute(
        {"attempt": attempt, "body": start.request}
        for (_, start), attempt in zip(begun, attempts, strict=True)
        if start.request is not None
    )
    written = {write.run_id: Written() for write in writes}
    for (write, _), attempt in zip(begun, attempts, strict=True):
        written[write.run_id] = Written(steps[write.run_id], attempt)
    return written


def _update_attempts(writes: list[RunWrite]) -> None:
    """Store replies that were received, and the ends of attempts."""
    received, ended, issues, usage = [], [], [], []
    for write in writes:
        row = write.running_row
        if row is None:
            continue
        if write.received is not None:
            reply = write.received.reply
            received.append((row, {"received": reply.arguments, **_list_reply_values(reply)}))
        if write.ended is not None:
            ended.append((row, _list_end_values(write.ended)))
            issues += list_issue_values(row, write.ended.issues)
        if write.usage is not None:
            usage.append({"attempt": row, **write.usage.__dict__})
    _UPDATE_ATTEMPT.execute(received)
    _UPDATE_ATTEMPT.execute(ended)
    _STORE_ISSUE.execute(issues)
    _STORE_USAGE.execute(usage)


def _list_end_values(ended: engine.Attempt) -> dict[str, Any]:
    return {
        "outcome": ended.outcome.value,
        "output": ended.output,
        "raw_output": ended.raw_output,
        **_list_reply_values(ended),
        "error": ended.error.model_dump(mode="json") if ended.error else None,
        "failure_reason": ended.failure_reason or "",
        "plugins": ended.plugins,
        "received": None,
        "ended_at": ended.ended_at,
    }


def _list_reply_values(reply: engine.Attempt | ToolReply) -> dict[str, Any]:
    return {
        "model": (reply.model or "")[:MAX_TEXT_LENGTH],
        "response_id": (reply.response_id or "")[:MAX_TEXT_LENGTH],
        "finish_reason": (reply.finish_reason or "")[:50],
    }


def _update_runs(writes: list[RunWrite]) -> None:
    """Store totals and ends of runs, what they can be found by, and what they used of budgets."""
    going_on, finished = [], []
    for write in writes:
        values = {"record_number": write.number, **write.totals}
        if (finish := write.finish) is None:
            going_on.append((write.run_id, values))
            continue
        values["status"], values["end_reason"] = finish.status.value, finish.reason.value
        values["end_sentence"], values["accepted_count"] = finish.sentence, len(finish.accepted)
        values["blocking_step"], values["blocking_attempt"] = finish.blocking or (None, None)
        finished.append((write.run_id, values))
        for step, number in finish.accepted:
            accepted = Attempt.objects.filter(step__run=write.run_id, step__index=step, number=number)
            accepted.update(is_accepted=True)
    _UPDATE_RUN.execute(going_on)
    _FINISH_RUN.execute(finished)
    add_facets((write.run_id, facet) for write in writes for facet in write.facets)
    add_spending(
        (write.flow_id, write.usage.total, write.usage.cost or Decimal(0))
        for write in writes
        if write.has_flow_budget and write.usage is not None
    )
