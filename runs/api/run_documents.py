"""Runs read from the database as models: what the API answers, exports hold and webhooks send."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.db.models import F, Prefetch, QuerySet

from flows.engine.history import NO_USAGE, Outcome, Severity, sum_usage
from flows.engine.spec import COST_PLACES
from flows.models import FlowVersion
from runs import models
from runs.api.schemas.runs import Attempt, AttemptParts, EndedRun, Run, RunParts, RunSummary, Step
from runs.models.history import AttemptQuerySet
from runs.prepared_select import PreparedSelect
from runs.stored_history import read_usage
from runs.webhooks.addresses import hide_path

if TYPE_CHECKING:
    from runs.api.run_links import RunLinks

WHOLE = RunParts()
INPUT_NAME = "Input"
"""What step 0 is called."""

_PRIORITY_NAMES = {priority.value: priority.name.lower() for priority in models.Priority}

# ---------------------------------------------------------------------------------------------------------------------
# Runs


def load_summaries(run_ids: Collection[int], links: RunLinks) -> list[RunSummary]:
    """What lists show of these runs, the newest first. One query."""
    return [RunSummary.model_validate(_build_values(row._asdict(), links)) for row in _load_rows(run_ids)]


def load_runs(run_ids: Collection[int], links: RunLinks | None, parts: RunParts) -> Iterator[Run]:
    """These runs, the newest first. One query, four with their attempts.

    Without ``links`` their addresses are empty; ``dump_without_addresses`` leaves them out.
    """
    rows = _load_rows(run_ids, has_input=True)
    has_attempts = parts.attempts != "none" and bool(rows)
    names = load_step_names({row.version_id for row in rows}) if has_attempts else {}
    attempts = _load_attempts(run_ids) if has_attempts else {}
    for row in rows:
        values = _build_values(row._asdict(), links)
        if has_attempts:
            # Let go of as soon as it is written: outputs may be large.
            own = attempts.pop(row.pk, [])
            values["steps"] = _build_steps(row.pk, values["input"], names[row.version_id], own, links, parts)
            values["usage"] = sum_usage(map(_read_usage, own))
        if not parts.usage:
            del values["usage"]
        yield Run.model_validate(values)


def load_run(run_id: int, links: RunLinks | None, parts: RunParts = WHOLE) -> Run | None:
    """One run, None if there is none of that number."""
    return next(load_runs([run_id], links, parts), None)


def load_ended_run(run_id: int) -> EndedRun:
    """What the receiver of a webhook gets of a run. Raises ``Run.DoesNotExist``."""
    for row in _load_rows([run_id], has_input=True):
        return EndedRun.model_validate(_build_state(row._asdict()))
    raise models.Run.DoesNotExist


def build_new_run(run: models.Run, links: RunLinks, *, started_by: str) -> Run:
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


_OF_ATTEMPT_ADDRESSES = {"url", "page_url"}
_OF_STEP_ADDRESSES = {"url": True, "attempts": {"__all__": _OF_ATTEMPT_ADDRESSES}}


def dump_without_addresses(model: Run | Attempt) -> dict[str, Any]:
    """The JSON values of a run or an attempt that is read where no host was asked."""
    exclude: Any = {"url": True, "page_url": True, "steps": {"__all__": _OF_STEP_ADDRESSES}}
    return model.model_dump(mode="json", exclude_unset=True, exclude=exclude)


_COLUMNS = (
    "pk", "again_of", "status", "end_reason", "end_sentence", "blocking_step", "blocking_attempt", "waiting_for",
    "cancel_requested", "is_simulated", "priority", "labels", "metadata", "model_settings", "token_budget",
    "cost_budget", "time_limit", "webhook_url", "created_at", "started_at", "ended_at", "step_count", "steps_passed",
    "attempt_count", "retry_count", "issues_low", "issues_medium", "issues_high", "issues_critical", "prompt_tokens",
    "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens", "cost", "unpriced_count",
    "outputs_removed_at", "version_id", "flow_name", "version_number", "user_name",
)  # fmt: skip
_MOST = (1, 50, 200)
"""How many runs the statements are for that are built once: one, as many as a page has by default, and at most."""


def _select_rows(columns: Sequence[str], run_ids: Collection[int]) -> QuerySet[models.Run, tuple[Any, ...]]:
    user = f"started_by__{get_user_model().USERNAME_FIELD}"
    return (
        models.Run.objects.filter(pk__in=run_ids)
        .annotate(flow_name=F("flow__name"), version_number=F("version__number"), user_name=F(user))
        .order_by("-created_at", "-pk")
        .values_list(*columns)
    )


_Row = namedtuple("_Row", _COLUMNS)  # type: ignore[misc]  # the names are not written out twice
_WholeRow = namedtuple("_WholeRow", (*_COLUMNS, "input"))  # type: ignore[misc]
_SELECTS = {
    row: {most: PreparedSelect(partial(_select_rows, row._fields), most=most) for most in _MOST}
    for row in (_Row, _WholeRow)
}


def _load_rows(run_ids: Collection[int], *, has_input: bool = False) -> list[Any]:
    """The columns of these runs, the newest first. One query.

    Plain values: to build objects of all that is joined takes as long as the rest of a list.
    """
    row = _WholeRow if has_input else _Row
    for most, select in _SELECTS[row].items():
        if len(run_ids) <= most:
            return [row(*values) for values in select.fetch(list(run_ids))]
    return [row(*values) for values in _select_rows(row._fields, run_ids)]


def _build_values(columns: Mapping[str, Any], links: RunLinks | None) -> dict[str, Any]:
    """The fields of ``Run`` besides its steps, from columns by name."""
    url = columns["webhook_url"]
    return {
        **_build_state(columns),
        "webhook_url": url if links and links.has_address else hide_path(url),
        "url": links.link_run(columns["pk"]) if links else "",
        "page_url": links.link_page(columns["pk"]) if links else "",
    }


def _build_state(columns: Mapping[str, Any]) -> dict[str, Any]:
    begin, end, time_limit, step = (columns[name] for name in ("started_at", "ended_at", "time_limit", "blocking_step"))
    state = {
        **columns,
        "id": columns["pk"],
        "blocking": None if step is None else {"step": step, "attempt": columns["blocking_attempt"]},
        "priority": _PRIORITY_NAMES[columns["priority"]],
        "time_limit": None if time_limit is None else int(time_limit.total_seconds()),
        "end_reason": columns["end_reason"] or None,
        "duration": None if begin is None or end is None else end - begin,
        "issue_counts": columns,
        "usage": columns,
    }
    if columns["outputs_removed_at"] is not None:
        # What is stored then is an empty object, which may have been an input too.
        state["input"] = None
    return state


# ---------------------------------------------------------------------------------------------------------------------
# Steps and attempts


def load_steps(run_id: int, links: RunLinks, parts: RunParts, *, index: int | None = None) -> list[Step]:
    """All steps of a run, or the one of that index; none if there is no such run. Four queries."""
    run = _load_input(run_id)
    if run is None:
        return []
    names = load_step_names([run.version_id])[run.version_id]
    only = {} if index is None else {"step__index": index}
    attempts = _load_attempts([run_id], **only).get(run_id, [])
    steps = _build_steps(run_id, run.input, names, attempts, links, parts)
    return steps if index is None else [step for step in steps if step.index == index]


def load_attempt(run_id: int, index: int, number: int, links: RunLinks | None, parts: AttemptParts) -> Attempt | None:
    """One attempt, None if there is none. Up to two queries."""
    if index:
        row = select_attempts().filter(step__run=run_id, step__index=index, number=number).first()
        return None if row is None else build_attempt(row, run_id, links, parts)
    run = _load_input(run_id) if number == 1 else None
    return None if run is None else _build_input_attempt(run_id, run.input, links, parts)


def _load_input(run_id: int) -> Any:
    rows = models.Run.objects.filter(pk=run_id).values_list("input", "version_id", "outputs_removed_at", named=True)
    row = rows.first()
    return row if row is None or row.outputs_removed_at is None else row._replace(input=None)


def select_attempts() -> AttemptQuerySet:
    """Attempts with all that ``build_attempt`` needs. Two queries, however many they are."""
    # The order that issues have by themselves would join all tables up to the run.
    issues = Prefetch("issues", models.Issue.objects.order_by("position"))
    return models.Attempt.objects.select_related("step", "usage", "sent").prefetch_related(issues)


def _load_attempts(run_ids: Collection[int], **only: Any) -> dict[int, list[models.Attempt]]:
    """The attempts of these runs by run, in order."""
    rows = select_attempts().filter(step__run__in=run_ids, **only).order_by("step__run_id", "step__index", "number")
    attempts: dict[int, list[models.Attempt]] = {}
    for row in rows:
        attempts.setdefault(row.step.run_id, []).append(row)
    return attempts


def load_step_names(version_ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The names of the steps of these versions, from step 1 on; none of a version that can't be read. One query."""
    # Names as they are written: to read specs with all that they hold takes far longer.
    specs = FlowVersion.objects.filter(pk__in=version_ids).values_list("pk", "spec")
    return {pk: _read_names(spec) for pk, spec in specs}


def _read_names(spec: Any) -> tuple[str, ...]:
    try:
        names = tuple(step["name"] for step in spec["steps"])
    except (KeyError, TypeError):
        return ()
    return names if all(isinstance(name, str) for name in names) else ()


def _build_steps(
    run_id: int,
    input: Any,
    names: Sequence[str],
    rows: Iterable[models.Attempt],
    links: RunLinks | None,
    parts: RunParts,
) -> list[Step]:
    """All steps of a run with step 0; without ``names``, of a version that can't be read, those that have begun."""
    by_index: dict[int, list[models.Attempt]] = {}
    for row in rows:
        by_index.setdefault(row.step.index, []).append(row)
    named = dict(enumerate(names, start=1)) or {index: own[0].step.name for index, own in by_index.items()}
    input_attempt = _build_input_attempt(run_id, input, links, parts)
    steps = [_build_step(run_id, 0, INPUT_NAME, Outcome.PASSED, [input_attempt], links, parts)]
    for index, name in named.items():
        own = by_index.get(index, [])
        counted = [row for row in own if row.outcome != Outcome.INTERRUPTED]
        outcomes = [row.outcome for row in counted if row.outcome]
        # Where every worker died, the last attempt shows how far it came.
        shown = (counted or own)[-1:] if parts.attempts == "final" else own
        attempts = [build_attempt(row, run_id, links, parts) for row in shown]
        steps.append(_build_step(run_id, index, name, outcomes[-1] if outcomes else None, attempts, links, parts))
    return steps


def _build_step(
    run_id: int,
    index: int,
    name: str,
    outcome: str | None,
    attempts: list[Attempt],
    links: RunLinks | None,
    parts: RunParts,
) -> Step:
    url = links.link_step(run_id, index) if links else ""
    values = {"index": index, "name": name, "outcome": outcome, "url": url, "attempts": attempts}
    if parts.attempts == "none":
        del values["attempts"]
    return Step.model_validate(values)


_OF_ATTEMPT = ("number", "input", "request", "plugins", "started_at")
_OF_ENDED_ATTEMPT = (
    "output", "raw_output", "model", "response_id", "finish_reason", "error", "failure_reason", "ended_at"
)  # fmt: skip
_OF_ISSUE = ("code", "severity", "description", "audit", "path", "context", "suggestions")


def _build_input_attempt(run_id: int, input: Any, links: RunLinks | None, parts: AttemptParts) -> Attempt:
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


def build_attempt(row: models.Attempt, run_id: int, links: RunLinks | None, parts: AttemptParts) -> Attempt:
    """An attempt of ``select_attempts``; of one that still runs all that is known at its end is None."""
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


def _finish_attempt(values: Mapping[str, Any], run_id: int, links: RunLinks | None, parts: AttemptParts) -> Attempt:
    place = (run_id, values["step"], values["number"])
    given = {
        **values,
        "url": links.link_attempt(*place) if links else "",
        "page_url": links.link_attempt_page(*place) if links else "",
    }
    if not parts.usage:
        del given["usage"]
    return Attempt.model_validate(given)


def _read_usage(row: models.Attempt) -> Any:
    usage = getattr(row, "usage", None)
    return read_usage(usage) if usage else NO_USAGE
