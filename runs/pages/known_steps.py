"""What is known of the steps of a run, also where this release can't read the version that it was made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from flows.engine.errors import SpecError
from flows.engine.model_calls import resolve_spec
from flows.engine.spec import FlowSpec, ModelSettings
from runs import models
from runs.models import Run


@dataclass(frozen=True, slots=True)
class KnownStep:
    """One step of a run. Of a version that can't be read only its place and, once it has begun, its name are known."""

    index: int
    name: str
    tool_name: str = ""
    model: str = ""
    is_local: bool = False
    max_attempts: int | None = None
    """None where it is not known."""


def read_spec(run: Run) -> FlowSpec | None:
    """The definition that a run was made with, with its model settings; None if this release can't read it."""
    try:
        return resolve_spec(run.version.flow_spec, ModelSettings.model_validate(run.model_settings))
    except (SpecError, ValidationError):
        return None


def list_steps(run: Run, spec: FlowSpec | None, rows: Sequence[models.Attempt]) -> tuple[KnownStep, ...]:
    """All steps of a run, from its ``spec`` or else from ``rows``, its attempts with their steps."""
    if spec is not None:
        return tuple(
            KnownStep(index, step.name, step.tool_name or "", step.model or "", step.is_local, step.max_attempts)
            for index, step in enumerate(spec.steps, start=1)
        )
    names = {row.step.index: row.step.name for row in rows}
    count = max(run.step_count, *names, 0)
    return tuple(KnownStep(index, names.get(index, f"Step {index}")) for index in range(1, count + 1))
