"""Runs read from the database as models: what the API answers, exports hold and webhooks send."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import F, Prefetch, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from flows.engine.history import NO_USAGE, Outcome, Severity, sum_usage
from flows.engine.spec import COST_PLACES
from flows.models import FlowVersion
from runs import models
from runs.documents.run import Attempt, AttemptParts, EndedRun, Run, RunParts, RunSummary, Step
from runs.history.issues import address_attempt
from runs.models.history import AttemptQuerySet
from runs.models.webhook import hide_path
from runs.paging import MAX_NUMBER
from runs.stored_history import build_engine_usage

WHOLE = RunParts()
INPUT_NAME = "Input"
"""What step 0 is called."""

_PRIORITY_NAMES = {priority.value: priority.name.lower() for priority in models.Priority}


class RunLinks:
    """Absolute addresses of runs and their parts, on the host that was asked.

    Without a request they lead nowhere; ``dump_without_addresses`` leaves them out.
    """

    def __init__(self, request: HttpRequest | None = None, *, shows_webhooks: bool = False) -> None:
        self._runs = self._pages = ""
        if request is not None:
            # Resolved once: to reverse the address of each attempt takes longer than to read it.
            self._runs = request.build_absolute_uri(reverse("api:list_runs"))
            self._pages = request.build_absolute_uri(reverse("runs:list"))
        self._shows_webhooks = shows_webhooks

    def link_run(self, run_id: int | str) -> str:
        """Where a run is read."""
        return f"{self._runs}/{run_id}"

    def link_page(self, run_id: int) -> str:
        """The page of a run."""
        return f"{self._pages}{run_id}/"

    def link_attempt(self, run_id: int, step: int, number: int) -> str:
        """Where an attempt is read."""
        return f"{self._runs}/{run_id}/steps/{step}/attempts/{number}"

    def show_webhook(self, url: str) -> str:
        """The address of a webhook, as far as the caller may see it."""
        return url if self._shows_webhooks else hide_path(url)


_OF_ATTEMPT_ADDRESSES = {"url", "page_url"}
_OF_STEP_ADDRESSES = {"url": True, "attempts": {"__all__": _OF_ATTEMPT_ADDRESSES}}


def dump_without_addresses(model: Run | Attempt) -> dict[str, Any]:
    """The JSON values of a run or an attempt that is read where no host was asked."""
    exclude: Any = {"url": True, "page_url": True, "steps": {"__all__": _OF_STEP_ADDRESSES}}
    return model.model_dump(mode="json", exclude_unset=True, exclude=exclude)


# ---------------------------------------------------------------------------------------------------------------------
# Runs


def load_summaries(run_ids: Collection[int], links: RunLinks) -> list[RunSummary]:
    """What lists show of these runs, the newest first. One query."""
    return [RunSummary.model_validate(_build_values(row, links)) for row in _select_runs(run_ids)]


def load_runs(run_ids: Collection[int], links: RunLinks | None, parts: RunParts) -> Iterator[Run]:
    """These runs, the newest first. One query, four with their attempts."""
    links = links or RunLinks()
    rows = list(_select_runs(run_ids, "input"))
    has_attempts = parts.attempts != "none" and bool(rows)
    names = _load_step_names({row["version_id"] for row in rows}) if has_attempts else {}
    attempts = _load_attempts(run_ids) if has_attempts else {}
    for row in rows:
        values = _build_values(row, links)
        if has_attempts:
            # Let go of as soon as it is written: outputs may be large.
            own = attempts.pop(row["pk"], [])
            values["steps"] = _build_steps(row["pk"], values["input"], names[row["version_id"]], own, links, parts)
            values["usage"] = sum_usage(map(_read_usage, own))
        if not parts.usage:
            del values["usage"]
        yield Run.model_validate(values)


def load_run(run_id: int, links: RunLinks | None, parts: RunParts = WHOLE) -> Run | None:
    """One run, None if there is none of that number."""
    if run_id > MAX_NUMBER:
        # SQLite takes no larger one in a list.
        return None
    return next(load_runs([run_id], links, parts), None)


def load_ended_run(run_id: int) -> EndedRun:
    """What the receiver of a webhook gets of a run. Raises ``Run.DoesNotExist``."""
    return EndedRun.model_validate(_build_state(_select_runs([run_id], "input").get()))


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


_COLUMNS = (
    "pk", "again_of", "status", "end_reason", "end_sentence", "blocking_step", "blocking_attempt", "waiting_for",
    "cancel_requested", "is_simulated", "priority", "labels", "metadata", "model_settings", "token_budget",
    "cost_budget", "time_limit", "webhook_url", "created_at", "started_at", "ended_at", "step_count", "steps_passed",
    "accepted_count",
    "attempt_count", "retry_count", "issues_low", "issues_medium", "issues_high", "issues_critical", "prompt_tokens",
    "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens", "cost", "unpriced_count",
    "outputs_removed_at", "version_id", "flow_name", "version_number", "user_name",
)  # fmt: skip


def _select_runs(run_ids: Collection[int], *more: str) -> QuerySet[models.Run, dict[str, Any]]:
    """The columns of these runs, the newest first: objects of all that is joined take as long as the rest of a list."""
    user = f"started_by__{get_user_model().USERNAME_FIELD}"
    rows = models.Run.objects.filter(pk__in=run_ids).order_by("-created_at", "-pk")
    names = {"flow_name": F("flow__name"), "version_number": F("version__number"), "user_name": F(user)}
    selected: QuerySet[models.Run, dict[str, Any]] = rows.annotate(**names).values(*_COLUMNS, *more)
    return selected


def _build_values(columns: Mapping[str, Any], links: RunLinks) -> dict[str, Any]:
    """The fields of ``Run`` besides its steps, from columns by name."""
    return {
        **_build_state(columns),
        "webhook_url": links.show_webhook(columns["webhook_url"]),
        "url": links.link_run(columns["pk"]),
        "page_url": links.link_page(columns["pk"]),
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
# Steps


def load_steps(run_id: int, links: RunLinks, parts: RunParts, *, index: int | None = None) -> list[Step]:
    """All steps of a run, or the one of that index; none if there is no such run. Four queries."""
    run = _load_input(run_id)
    if run is None:
        return []
    names = _load_step_names([run.version_id])[run.version_id]
    only = {} if index is None else {"step__index": index}
    attempts = _load_attempts([run_id], **only).get(run_id, [])
    steps = _build_steps(run_id, run.input, names, attempts, links, parts)
    return [step for step in steps if index in (None, step.index)]


def _load_input(run_id: int) -> Any:
    rows = models.Run.objects.filter(pk=run_id).values_list("input", "version_id", "outputs_removed_at", named=True)
    row = rows.first()
    return row if row is None or row.outputs_removed_at is None else row._replace(input=None)


def _load_step_names(version_ids: Collection[int]) -> dict[int, tuple[str, ...]]:
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
    links: RunLinks,
    parts: RunParts,
) -> list[Step]:
    """All steps of a run with step 0; without ``names``, of a version that can't be read, those that have begun."""
    by_index: dict[int, list[models.Attempt]] = {}
    for row in rows:
        by_index.setdefault(row.step.index, []).append(row)
    named = dict(enumerate(names, start=1)) or {index: own[0].step.name for index, own in by_index.items()}
    steps: list[dict[str, Any]] = [
        {
            "index": 0,
            "name": INPUT_NAME,
            "outcome": Outcome.PASSED,
            "attempts": [_build_input_attempt(run_id, input, links, parts)],
        }
    ]
    for index, name in named.items():
        own = by_index.get(index, [])
        counted = [row for row in own if row.outcome != Outcome.INTERRUPTED]
        deciding = [row for row in own if row.is_accepted] or counted
        outcomes = [row.outcome for row in deciding if row.outcome]
        # Where every worker died, the last attempt shows how far it came.
        shown = (deciding or own)[-1:] if parts.attempts == "final" else own
        steps.append(
            {
                "index": index,
                "name": name,
                "outcome": outcomes[-1] if outcomes else None,
                "attempts": [build_attempt(row, run_id, links, parts) for row in shown],
            }
        )
    for step in steps:
        step["url"] = f"{links.link_run(run_id)}/steps/{step['index']}"
        if parts.attempts == "none":
            del step["attempts"]
    return [Step.model_validate(step) for step in steps]


# ---------------------------------------------------------------------------------------------------------------------
# Attempts


def load_attempt(run_id: int, index: int, number: int, links: RunLinks | None, parts: AttemptParts) -> Attempt | None:
    """One attempt, None if there is none. Up to two queries."""
    links = links or RunLinks()
    if index:
        row = select_attempts().filter(step__run=run_id, step__index=index, number=number).first()
        return None if row is None else build_attempt(row, run_id, links, parts)
    run = _load_input(run_id) if number == 1 else None
    return None if run is None else _build_input_attempt(run_id, run.input, links, parts)


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


_COLUMNS_OF_ATTEMPT = ("number", "input", "request", "plugins", "started_at", "is_accepted")
_COLUMNS_AT_END = (
    "output", "raw_output", "model", "response_id", "finish_reason", "error", "failure_reason", "ended_at"
)  # fmt: skip
COLUMNS_OF_ISSUE = ("code", "severity", "description", "audit", "path", "context", "suggestions")


def build_attempt(row: models.Attempt, run_id: int, links: RunLinks, parts: AttemptParts) -> Attempt:
    """An attempt of ``select_attempts``; of one that still runs all that is known at its end is None."""
    has_ended = bool(row.outcome)
    values = {
        **{name: getattr(row, name) for name in _COLUMNS_OF_ATTEMPT},
        **{name: getattr(row, name) if has_ended else None for name in _COLUMNS_AT_END},
        "step": row.step.index,
        "outcome": row.outcome or None,
        "usage": _read_usage(row) if has_ended else None,
        "duration": row.ended_at - row.started_at if has_ended and row.ended_at and row.started_at else None,
        "issues": [
            {**{name: getattr(issue, name) for name in COLUMNS_OF_ISSUE}, **issue.added_fields}
            for issue in row.issues.all()
            if Severity(issue.severity) >= parts.min_severity
        ],
    }
    if values["error"]:
        values["error"] = {"status": None, "retry_after": None, **values["error"]}
    return _finish_attempt(values, run_id, links, parts)


def _build_input_attempt(run_id: int, input: Any, links: RunLinks, parts: AttemptParts) -> Attempt:
    """The only attempt of step 0."""
    values = {
        **dict.fromkeys((*_COLUMNS_OF_ATTEMPT, *_COLUMNS_AT_END, "duration")),
        "step": 0,
        "number": 1,
        "outcome": Outcome.PASSED,
        "input": input,
        "output": input,
        "issues": [],
        "is_accepted": False,
        "plugins": {},
        "usage": NO_USAGE,
    }
    return _finish_attempt(values, run_id, links, parts)


def _finish_attempt(values: dict[str, Any], run_id: int, links: RunLinks, parts: AttemptParts) -> Attempt:
    step, number = values["step"], values["number"]
    values["url"] = links.link_attempt(run_id, step, number)
    values["page_url"] = f"{links.link_page(run_id)}{address_attempt(step, number)}"
    if not parts.usage:
        del values["usage"]
    return Attempt.model_validate(values)


def _read_usage(row: models.Attempt) -> Any:
    usage = getattr(row, "usage", None)
    return build_engine_usage(usage) if usage else NO_USAGE
