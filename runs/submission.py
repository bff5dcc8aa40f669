"""Starting runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction

from flows.engine.running import check_input
from flows.engine.spec import ModelSettings
from flows.models import Flow, FlowVersion
from runs.facets import add_facets
from runs.models import FacetKind, Priority, Run
from runs.queue import wake_worker
from runs.run_options import check_labels

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser


class NotRunnableError(Exception):
    """A flow can't be run: it has no live version, or it is archived."""


def submit_run(
    *,
    flow: Flow,
    input: Any,
    version: FlowVersion | None = None,
    started_by: AbstractBaseUser | None = None,
    priority: Priority = Priority.NORMAL,
    token_budget: int | None = None,
    cost_budget: Decimal | None = None,
    time_limit: int | None = None,
    labels: Sequence[str] = (),
) -> Run:
    """Queue a run of ``version``, by default the live one, and wake a worker.

    ``token_budget``, ``cost_budget`` (USD) and ``time_limit`` (seconds from the run's start) replace what the version
    says. ``labels`` are short texts by which the run is found again.

    Raises ``InputError`` with JSON pointers into the input if it doesn't fit the version's input schema, and
    ``NotRunnableError`` if the flow has nothing to run, and ``ValueError`` with a sentence for labels that can't be.
    """
    check_labels(labels)
    version = version or flow.live_version
    if version is None:
        raise NotRunnableError(f"“{flow}” has no published version yet. Save it without errors first.")
    if flow.is_archived:
        raise NotRunnableError(f"“{flow}” is archived. Take it out of the archive to run it.")
    spec = version.flow_spec.with_limits(
        token_budget=token_budget, cost_budget=cost_budget, time_limit=time_limit
    ).resolve(default_model_settings())
    run = Run(
        flow=flow,
        version=version,
        input=check_input(input, spec.input_schema),
        model_settings=default_model_settings().model_dump(mode="json"),
        is_simulated=settings.TOOLFLOW_PROVIDER == "simulated",
        started_by_id=started_by.pk if started_by else None,
        step_count=len(spec.steps),
        labels=sorted(set(labels)),
        priority=priority,
        token_budget=spec.token_budget,
        cost_budget=spec.cost_budget,
        time_limit=timedelta(seconds=spec.time_limit) if spec.time_limit is not None else None,
        # Empty for a local step: nothing limits it.
        next_model=spec.step(1).model or "",
    )
    with transaction.atomic():
        run.save(force_insert=True)
        add_facets((run.pk, (FacetKind.LABEL, label)) for label in run.labels)
        wake_worker()
    return run


def default_model_settings() -> ModelSettings:
    """What calls of this installation fall back to."""
    return ModelSettings(
        model=settings.TOOLFLOW_MODEL,
        temperature=settings.TOOLFLOW_TEMPERATURE,
        max_tokens=settings.TOOLFLOW_MAX_TOKENS,
    )
