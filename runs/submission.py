"""Starting runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction

from flows.engine.running import check_input
from flows.engine.spec import ModelSettings
from flows.models import Flow, FlowVersion
from runs.models import Run
from runs.queue import wake_worker

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
) -> Run:
    """Queue a run of ``version``, by default the live one, and wake a worker.

    Raises ``InputError`` with JSON pointers into the input if it doesn't fit the version's input schema, and
    ``NotRunnableError`` if the flow has nothing to run.
    """
    version = version or flow.live_version
    if version is None:
        raise NotRunnableError(f"“{flow}” has no published version yet. Save it without errors first.")
    if flow.is_archived:
        raise NotRunnableError(f"“{flow}” is archived. Take it out of the archive to run it.")
    spec = version.flow_spec
    run = Run(
        flow=flow,
        version=version,
        input=check_input(input, spec.input_schema),
        model_settings=default_model_settings().model_dump(mode="json"),
        is_simulated=settings.TOOLFLOW_PROVIDER == "simulated",
        started_by_id=started_by.pk if started_by else None,
        step_count=len(spec.steps),
    )
    with transaction.atomic():
        run.save(force_insert=True)
        wake_worker()
    return run


def default_model_settings() -> ModelSettings:
    """What calls of this installation fall back to."""
    return ModelSettings(
        model=settings.TOOLFLOW_MODEL,
        temperature=settings.TOOLFLOW_TEMPERATURE,
        max_tokens=settings.TOOLFLOW_MAX_TOKENS,
    )
