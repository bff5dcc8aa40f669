"""What is known of a run besides its attempts, as a JSON document."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import F, QuerySet

from runs.documents.attempt_document import measure_seconds, write_amount, write_time
from runs.models import Priority, Run
from runs.prepared_select import PreparedSelect
from runs.webhooks.addresses import hide_path

_PRIORITIES = {priority.value: priority.name.lower() for priority in Priority}
_SUMMARY = (
    "pk",
    "again_of",
    "status",
    "end_reason",
    "end_sentence",
    "blocking_step",
    "blocking_attempt",
    "waiting_for",
    "cancel_requested",
    "is_simulated",
    "priority",
    "labels",
    "metadata",
    "model_settings",
    "token_budget",
    "cost_budget",
    "time_limit",
    "webhook_url",
    "created_at",
    "started_at",
    "ended_at",
    "step_count",
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
    "outputs_removed_at",
    "version_id",
    "flow_name",
    "version_number",
    "user_name",
)


_MOST = (1, 50, 200)
"""How many runs the statements are for that are built once: one, as many as a page has by default, and at most."""


def load_run_rows(run_ids: Collection[int], *, has_input: bool = True) -> list[Any]:
    """The columns of these runs that documents are made of, the newest first. One query.

    Plain values: to build objects of all that is joined takes as long as the rest of a list.
    """
    row, statements = (_WholeRow, _WHOLE) if has_input else (_Row, _SUMMARIES)
    for most, statement in statements.items():
        if len(run_ids) <= most:
            return [row(*values) for values in statement.fetch(list(run_ids))]
    return [row(*values) for values in _select(row._fields, run_ids)]


def _select(columns: Sequence[str], run_ids: Collection[int]) -> QuerySet[Run, tuple[Any, ...]]:
    user = f"started_by__{get_user_model().USERNAME_FIELD}"
    return (
        Run.objects.filter(pk__in=run_ids)
        .annotate(flow_name=F("flow__name"), version_number=F("version__number"), user_name=F(user))
        .order_by("-created_at", "-pk")
        .values_list(*columns)
    )


def _prepare(columns: Sequence[str]) -> dict[int, PreparedSelect]:
    return {most: PreparedSelect(partial(_select, columns), most=most) for most in _MOST}


_Row = namedtuple("_Row", _SUMMARY)  # type: ignore[misc]  # the names are not written out twice
_WholeRow = namedtuple("_WholeRow", (*_Row._fields, "input"))  # type: ignore[misc]
_SUMMARIES = _prepare(_Row._fields)
_WHOLE = _prepare(_WholeRow._fields)


def find_input(row: Any) -> Any:
    """What a run was given; None once retention has removed it."""
    return row.input if row.outputs_removed_at is None else None


def build_summary(row: Any, *, has_usage: bool = True, has_address: bool = False) -> dict[str, Any]:
    """The document of one row of ``load_run_rows``; it has the run’s input if the row has it.

    ``has_address`` shows the whole address of its webhook, which may hold a key; else it is only told whose it is.

    What isn't there is None. Budgets and costs are in USD, ``time_limit`` and ``duration`` in seconds; the duration
    is that of a run that has begun and ended.
    """
    blocking = {"step": row.blocking_step, "attempt": row.blocking_attempt} if row.blocking_step is not None else None
    document = {
        "id": row.pk,
        "flow": row.flow_name,
        "version": row.version_number,
        "again_of": row.again_of,
        "status": row.status,
        "end_reason": row.end_reason or None,
        "end_sentence": row.end_sentence or None,
        "blocking": blocking,
        "waiting_for": row.waiting_for or None,
        "cancel_requested": row.cancel_requested,
        "labels": row.labels,
        "metadata": row.metadata,
        "priority": _PRIORITIES[row.priority],
        "is_simulated": row.is_simulated,
        "model_settings": row.model_settings,
        "token_budget": row.token_budget,
        "cost_budget": write_amount(row.cost_budget),
        "time_limit": None if row.time_limit is None else int(row.time_limit.total_seconds()),
        "webhook_url": (row.webhook_url if has_address else hide_path(row.webhook_url)) or None,
        "started_by": row.user_name,
        "created_at": write_time(row.created_at),
        "started_at": write_time(row.started_at),
        "ended_at": write_time(row.ended_at),
        "duration": measure_seconds(row.started_at, row.ended_at),
        "outputs_removed_at": write_time(row.outputs_removed_at),
        "step_count": row.step_count,
        "steps_passed": row.steps_passed,
        "attempt_count": row.attempt_count,
        "retry_count": row.retry_count,
        "issue_counts": {
            "low": row.issues_low,
            "medium": row.issues_medium,
            "high": row.issues_high,
            "critical": row.issues_critical,
        },
    }
    if hasattr(row, "input"):
        document["input"] = find_input(row)
    if has_usage:
        document["usage"] = {
            "prompt": row.prompt_tokens,
            "completion": row.completion_tokens,
            "total": row.total_tokens,
            "cached": row.cached_tokens,
            "reasoning": row.reasoning_tokens,
            "cost": write_amount(row.cost),
            "unpriced": row.unpriced_count,
        }
    return document
