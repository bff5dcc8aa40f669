"""Runs read from the database as the models that are answered: rows in, models out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from flows.engine.history import NO_USAGE, Outcome, Severity, sum_usage
from flows.engine.spec import COST_PLACES
from runs.api.run_links import RunLinks
from runs.api.schemas.runs import Attempt, AttemptParts, Run, RunParts, RunSummary, Step
from runs.documents.run_summary import find_input, load_run_rows
from runs.documents.step_document import INPUT_NAME, load_attempts, load_step_names
from runs.models import Attempt as AttemptRow
from runs.models import Priority
from runs.models import Run as RunRow
from runs.stored_history import read_usage
from runs.webhooks.addresses import hide_path

_PRIORITY_NAMES = {priority.value: priority.name.lower() for priority in Priority}
_OF_ATTEMPT = ("number", "input", "request", "plugins", "started_at")
_OF_ENDED_ATTEMPT = (
    "output", "raw_output", "model", "response_id", "finish_reason", "error", "failure_reason", "ended_at"
)  # fmt: skip
_OF_ISSUE = ("code", "severity", "description", "audit", "path", "context", "suggestions")


def load_summaries(run_ids: Sequence[int], links: RunLinks) -> list[RunSummary]:
    """What lists show of these runs, the newest first. One query."""
    rows = load_run_rows(run_ids, has_input=False)
    return [RunSummary.model_validate(_build_values(row._asdict(), links)) for row in rows]


def build_new_run(run: RunRow, links: RunLinks, *, started_by: str) -> Run:
    """A run that was just stored, as reading it would give it without attempts; the caller knows its webhook."""
    columns = {
        **vars(run),
        "pk": run.pk,
        "flow_name": run.flow.name,
        "version_number": run.version.number,
        "user_name": started_by,
        # With as many places as its column has.
        "cost_budget": None if run.cost_budget is None else run.cost_budget.quantize(Decimal(10) ** -COST_PLACES),
    }
    return Run.model_validate({**_build_values(columns, links), "webhook_url": run.webhook_url})


def load_run(run_id: int, links: RunLinks, parts: RunParts) -> Run | None:
    """One run, None if there is none of that number. One query, four with its attempts."""
    for row in load_run_rows([run_id]):
        values = _build_values(row._asdict(), links)
        values["input"] = find_input(row)
        if parts.attempts != "none":
            names = load_step_names([row.version_id])[row.version_id]
            attempts = load_attempts([run_id]).get(run_id, [])
            values["steps"] = build_steps(run_id, values["input"], names, attempts, links, parts)
            values["usage"] = sum_usage(map(_read_usage, attempts))
        if not parts.usage:
            del values["usage"]
        return Run.model_validate(values)
    return None


def _build_values(columns: Mapping[str, Any], links: RunLinks) -> dict[str, Any]:
    """The fields of ``RunSummary`` from the columns of ``load_run_rows``, by name."""
    run_id, begin, end, time_limit = (columns[name] for name in ("pk", "started_at", "ended_at", "time_limit"))
    step = columns["blocking_step"]
    return {
        **columns,
        "id": run_id,
        "blocking": None if step is None else {"step": step, "attempt": columns["blocking_attempt"]},
        "priority": _PRIORITY_NAMES[columns["priority"]],
        "time_limit": None if time_limit is None else int(time_limit.total_seconds()),
        "webhook_url": columns["webhook_url"] if links.has_address else hide_path(columns["webhook_url"]),
        "end_reason": columns["end_reason"] or None,
        "duration": None if begin is None or end is None else end - begin,
        "issue_counts": columns,
        "usage": columns,
        "url": links.link_run(run_id),
        "page_url": links.link_page(run_id),
    }


def build_steps(
    run_id: int,
    input: Any,
    names: Sequence[str],
    rows: Iterable[AttemptRow],
    links: RunLinks,
    parts: RunParts,
) -> list[Step]:
    """All steps of a run, also those that have not begun; step 0 is the input.

    ``names`` are empty of a version that can't be read: then steps that have begun.
    """
    by_index: dict[int, list[AttemptRow]] = {}
    for row in rows:
        by_index.setdefault(row.step.index, []).append(row)
    if not names:
        steps = [build_step(run_id, own[0].step.name, index, own, links, parts) for index, own in by_index.items()]
    else:
        steps = [
            build_step(run_id, name, index, by_index.get(index, ()), links, parts)
            for index, name in enumerate(names, start=1)
        ]
    return [build_input_step(run_id, input, links, parts), *steps]


def build_step(
    run_id: int, name: str, index: int, rows: Sequence[AttemptRow], links: RunLinks, parts: RunParts
) -> Step:
    """A step with its attempts; its outcome is that of the attempt that decided so far."""
    counted = [row for row in rows if row.outcome != Outcome.INTERRUPTED]
    outcomes = [row.outcome for row in counted if row.outcome]
    # Where every worker died, the last attempt shows how far it came.
    shown = (counted or rows)[-1:] if parts.attempts == "final" else rows
    values = {
        "index": index,
        "name": name,
        "outcome": outcomes[-1] if outcomes else None,
        "url": links.link_step(run_id, index),
    }
    if parts.attempts != "none":
        values["attempts"] = [build_attempt(row, run_id, links, parts) for row in shown]
    return Step.model_validate(values)


def build_input_step(run_id: int, input: Any, links: RunLinks, parts: RunParts) -> Step:
    """Step 0: the input as its own passed attempt."""
    values = {"index": 0, "name": INPUT_NAME, "outcome": Outcome.PASSED, "url": links.link_step(run_id, 0)}
    if parts.attempts != "none":
        values["attempts"] = [build_input_attempt(run_id, input, links, parts)]
    return Step.model_validate(values)


def build_input_attempt(run_id: int, input: Any, links: RunLinks, parts: AttemptParts) -> Attempt:
    """The only attempt of step 0."""
    values = {
        **dict.fromkeys((*_OF_ATTEMPT, *_OF_ENDED_ATTEMPT, "duration")),
        "step": 0,
        "number": 1,
        "outcome": Outcome.PASSED,
        "input": input,
        "output": input,
        "issues": [],
        "plugins": {},
        "usage": NO_USAGE,
    }
    return _finish_attempt(values, run_id, links, parts)


def build_attempt(row: AttemptRow, run_id: int, links: RunLinks, parts: AttemptParts) -> Attempt:
    """An attempt, of a row of ``list_attempts``; of one that still runs all that is known at its end is None."""
    values: dict[str, Any] = {
        "step": row.step.index,
        "outcome": row.outcome or None,
        "issues": [],
        "usage": None,
        "duration": None,
        **{name: getattr(row, name) for name in _OF_ATTEMPT},
        **dict.fromkeys(_OF_ENDED_ATTEMPT),
    }
    if row.outcome:
        values.update((name, getattr(row, name)) for name in _OF_ENDED_ATTEMPT)
        values["error"] = {"status": None, "retry_after": None, **row.error} if row.error else None
        values["issues"] = [
            {**{name: getattr(issue, name) for name in _OF_ISSUE}, **issue.added_fields}
            for issue in row.issues.all()
            if Severity(issue.severity) >= parts.min_severity
        ]
        values["usage"] = _read_usage(row)
        if row.started_at is not None and row.ended_at is not None:
            values["duration"] = row.ended_at - row.started_at
    return _finish_attempt(values, run_id, links, parts)


def _finish_attempt(values: Mapping[str, Any], run_id: int, links: RunLinks, parts: AttemptParts) -> Attempt:
    step, number = values["step"], values["number"]
    given = {
        **values,
        "url": links.link_attempt(run_id, step, number),
        "page_url": links.link_attempt_page(run_id, step, number),
    }
    if not parts.usage:
        del given["usage"]
    return Attempt.model_validate(given)


def _read_usage(row: AttemptRow) -> Any:
    usage = getattr(row, "usage", None)
    return read_usage(usage) if usage else NO_USAGE
