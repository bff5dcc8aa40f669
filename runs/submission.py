"""Starting runs, one or many at a time, and cancelling one.

Preparing is apart from storing: inputs are validated while no other process waits for the database.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from django.db import transaction
from django.db.models import F

from flows.engine.errors import InputError, Problem, ProblemsError
from flows.engine.model_calls import check_model_calls, resolve_spec
from flows.engine.redaction import find_marks, redact_input
from flows.engine.schemas import parse_input
from flows.engine.spec import FlowSpec, ModelSettings
from flows.models import Flow, FlowVersion
from flows.providers import build_providers, default_model_settings, is_simulated_flow
from runs.audit_log.events import AuditAction, log_audit_event
from runs.facets import add_facets
from runs.models import FacetKind, OriginalInput, Priority, Run
from runs.observability.log_events import log_event
from runs.queue import wake_worker
from runs.run_options import (
    find_label_problems,
    list_lasting_labels,
    validate_labels,
    validate_metadata,
    validate_webhook_url,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser


logger = logging.getLogger(__name__)


class NotRunnableError(Exception):
    """A flow can't be run: it has no live version, is archived, or names a model that can't be called."""


class OrdersError(ProblemsError):
    """Some of many runs can't be started. ``problems`` point into the list of orders: ``/3/input/topic``."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What one of many runs is given of its own."""

    input: Any
    labels: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Run | None = None
    """The run that it repeats."""


class SubmitOptions(TypedDict, total=False):
    """What the runs of one request share, besides their flow.

    ``version`` is the live one unless it is given. ``token_budget``, ``cost_budget`` (USD) and ``time_limit`` (seconds
    from a run's start) replace those of the version; ``webhook_url`` is notified when a run has ended.
    """

    version: FlowVersion | None
    started_by: AbstractBaseUser | None
    priority: Priority
    token_budget: int | None
    cost_budget: Decimal | None
    time_limit: int | None
    webhook_url: str


def submit_run(
    *,
    flow: Flow,
    input: Any,
    labels: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    source: Run | None = None,
    **options: Unpack[SubmitOptions],
) -> Run:
    """Queue a run of ``flow``, and wake a worker. The other arguments are those of ``RunOrder``.

    Raises ``InputError`` with JSON pointers into the input if it doesn't fit the version's input schema,
    ``NotRunnableError`` if the flow has nothing to run, and ``ValueError`` with a sentence for labels, metadata and
    addresses that are not valid.
    """
    order = RunOrder(input, labels, {} if metadata is None else metadata, source)
    validate_labels(order.labels)
    validate_metadata(order.metadata)
    shared = _SharedValues.resolve(flow, options)
    return store_runs([shared.build_run(order, shared.parse_input(order))])[0]


def submit_runs(*, flow: Flow, orders: Sequence[RunOrder], **options: Unpack[SubmitOptions]) -> list[Run]:
    """Queue a run for each of ``orders``, all or none, and wake a worker. Raises as ``prepare_runs``."""
    return store_runs(prepare_runs(flow=flow, orders=orders, **options))


def prepare_runs(*, flow: Flow, orders: Sequence[RunOrder], **options: Unpack[SubmitOptions]) -> list[Run]:
    """Runs as ``store_runs`` takes them, one for each of ``orders``. Nothing is stored yet.

    Raises ``OrdersError`` that lists what is wrong with any of the orders, ``NotRunnableError`` if the flow has nothing
    to run, and ``ValueError`` with a sentence for an address that is not valid.
    """
    shared = _SharedValues.resolve(flow, options)
    runs: list[Run] = []
    problems: list[Problem] = []
    for index, order in enumerate(orders):
        found = list(_find_problems(order))
        try:
            input = shared.parse_input(order)
        except InputError as error:
            found += [Problem(f"/input{problem.path}", problem.message) for problem in error.problems]
        if found:
            problems += [Problem(f"/{index}{problem.path}", problem.message) for problem in found]
        elif not problems:
            runs.append(shared.build_run(order, input))
    if problems:
        raise OrdersError(problems)
    return runs


def store_runs(runs: Sequence[Run]) -> list[Run]:
    """Queue prepared runs, all or none, and wake a worker; gives them with their numbers, in their order."""
    with transaction.atomic():
        stored = Run.objects.bulk_create(runs)
        if originals := [run.original_input for run in runs if run.is_input_redacted]:
            OriginalInput.objects.bulk_create(originals)
        add_facets((run.pk, (FacetKind.LABEL, label)) for run in stored for label in run.labels)
        if stored:
            _log_started(stored)
            wake_worker()
            transaction.on_commit(partial(_log, stored[0], len(stored)))
    return stored


def _log_started(runs: Sequence[Run]) -> None:
    """One entry for runs that were started together."""
    first, last = runs[0], runs[-1]
    details = {"flow": first.flow.name, "version": first.version.number}
    if first is last:
        log_audit_event(action=AuditAction.RUN_STARTED, about=first, details=details)
    else:
        details |= {"runs": len(runs), "first": first.pk, "last": last.pk}
        log_audit_event(action=AuditAction.RUNS_STARTED, about=first.flow, details=details)


def _log(first: Run, count: int) -> None:
    """Tie runs to the request that submitted them, whose id is on this line."""
    message = "The run is queued." if count == 1 else f"{count} runs are queued."
    runs = count if count > 1 else None
    log_event(logger, logging.INFO, "run.submitted", message, run=first.pk, runs=runs, flow=first.flow_id)


def find_own_limits(run: Run, spec: FlowSpec | None) -> dict[str, Any]:
    """The budgets and the time limit of a run that are not those of its version, as ``submit_run`` takes them.

    ``spec`` is that of the run's version, None if it can't be read.
    """
    seconds = int(run.time_limit.total_seconds()) if run.time_limit is not None else None
    given = {
        "token_budget": (run.token_budget, spec and spec.token_budget),
        "cost_budget": (run.cost_budget, spec and spec.cost_budget),
        "time_limit": (seconds, spec and spec.time_limit),
    }
    return {name: own for name, (own, inherited) in given.items() if own != inherited}


def cancel_run(*, run: Run) -> bool:
    """Cancel a queued run at once, a running one as soon as its worker sees it; False if it has ended.

    Idempotent: only the first request is logged.
    """
    was_asked = run.cancel_requested
    with transaction.atomic():
        is_cancelled = run.request_cancel()
        if is_cancelled and not was_asked:
            log_audit_event(action=AuditAction.RUN_CANCELLED, about=run)
    return is_cancelled


def change_run(*, run_id: int, changes: Mapping[str, Any]) -> None:
    """Replace the ``labels`` or the ``metadata`` of a run, or both; None removes them.

    Labels of bulk actions stay with the run, also where a client sends back the labels that it read.
    Raises ``ProblemsError`` with JSON pointers for what is not valid, and ``Run.DoesNotExist``.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        values: dict[str, Any] = {}
        if "labels" in changes:
            labels = changes["labels"] or []
            lasting = list_lasting_labels(run.labels)
            of_bulk_actions = [label for label in run.labels if label not in lasting]
            given = ["-" if label in of_bulk_actions else label for label in labels]
            if problems := [Problem(f"/labels{one.path}", one.message) for one in find_label_problems(given)]:
                raise ProblemsError(problems)
            values["labels"] = sorted({*labels, *of_bulk_actions})
        if "metadata" in changes:
            values["metadata"] = dict(changes["metadata"] or {})
            try:
                validate_metadata(values["metadata"])
            except ValueError as error:
                raise ProblemsError([Problem("/metadata", str(error))]) from None
        changed = sorted(name for name, value in values.items() if value != getattr(run, name))
        if not changed:
            return
        Run.objects.filter(pk=run_id).update(**values, revision=F("revision") + 1)
        if "labels" in changed:
            run.facets.filter(kind=FacetKind.LABEL).exclude(value__in=values["labels"]).delete()
            add_facets((run_id, (FacetKind.LABEL, label)) for label in values["labels"])
        log_audit_event(action=AuditAction.RUN_CHANGED, about=run, details={"changed": changed})


@dataclass(frozen=True, slots=True)
class _SharedValues:
    """What the runs of one request share."""

    input_schema: dict[str, Any] | None
    redact: Collection[str]
    values: Mapping[str, Any]
    """Columns of a run."""

    @classmethod
    def resolve(cls, flow: Flow, options: SubmitOptions) -> _SharedValues:
        webhook_url = options.get("webhook_url", "")
        if webhook_url:
            validate_webhook_url(webhook_url)
        version = options.get("version") or flow.live_version
        if version is None:
            raise NotRunnableError(f"“{flow}” has no published version yet. Save it without errors first.")
        if flow.is_archived:
            raise NotRunnableError(f"“{flow}” is archived. Unarchive it to run it.")
        defaults, providers = default_model_settings(), build_providers()
        if problems := check_model_calls(version.flow_spec, defaults, providers):
            raise NotRunnableError(f"“{flow}” can't be run. {problems[0].message}")
        spec = version.flow_spec.with_limits(
            token_budget=options.get("token_budget"),
            cost_budget=options.get("cost_budget"),
            time_limit=options.get("time_limit"),
        )
        spec = resolve_spec(spec, defaults, providers)
        own = {name: value for name in ModelSettings.model_fields if (value := getattr(spec, name)) is not None}
        started_by = options.get("started_by")
        values = {
            "flow": flow,
            "version": version,
            "model_settings": defaults.model_copy(update=own).model_dump(mode="json"),
            "is_simulated": is_simulated_flow(spec),
            "started_by_id": started_by.pk if started_by else None,
            "step_count": len(spec.steps),
            "priority": options.get("priority", Priority.NORMAL),
            "token_budget": spec.token_budget,
            "cost_budget": spec.cost_budget,
            "time_limit": timedelta(seconds=spec.time_limit) if spec.time_limit is not None else None,
            "webhook_url": webhook_url,
            # Empty for a local step: nothing limits it.
            "next_model": spec.step(1).model or "",
        }
        return cls(spec.input_schema, spec.redact, values)

    def parse_input(self, order: RunOrder) -> dict[str, Any]:
        """An input as it is stored. Raises ``InputError``, also for one that was redacted before."""
        was_redacted = order.source is not None and order.source.is_input_redacted
        if (self.redact or was_redacted) and (marks := find_marks(order.input)):
            raise InputError(marks)
        return parse_input(order.input, self.input_schema)

    def build_run(self, order: RunOrder, input: dict[str, Any]) -> Run:
        """A run that is not stored yet. ``input`` is that of the order, checked."""
        kept = redact_input(self.redact, input)
        run = Run(
            **self.values,
            input=kept,
            labels=sorted(set(order.labels)),
            metadata=dict(order.metadata),
            again_of=order.source.pk if order.source is not None else None,
        )
        if kept is not input:
            run.is_input_redacted = True
            run.original_input = OriginalInput(run=run, input=input)
        return run


def _find_problems(order: RunOrder) -> list[Problem]:
    """What is wrong with an order besides its input."""
    problems = [Problem(f"/labels{problem.path}", problem.message) for problem in find_label_problems(order.labels)]
    try:
        validate_metadata(order.metadata)
    except ValueError as error:
        problems.append(Problem("/metadata", str(error)))
    return problems
