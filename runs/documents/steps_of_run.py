"""The steps of one run as JSON documents, without the run."""

from __future__ import annotations

from typing import Any

from runs.documents.run_summary import find_input
from runs.documents.step_document import (
    WHOLE,
    Shown,
    build_input_step,
    build_step,
    build_steps,
    list_attempts,
    load_attempts,
    load_step_names,
)
from runs.models import Run


class StepDocuments:
    """Reads steps as documents, with or without their attempts; ``shown`` says which part of these they hold."""

    def __init__(self, *, has_attempts: bool = True, shown: Shown = WHOLE) -> None:
        self._has_attempts = has_attempts
        self._shown = shown

    def read(self, run_id: int) -> list[dict[str, Any]] | None:
        """All steps of a run, also those that have not begun; None if there is no such run. Four queries."""
        run = _load_run(run_id)
        if run is None:
            return None
        names = load_step_names([run.version_id])[run.version_id]
        rows = load_attempts([run_id]).get(run_id, [])
        return [self._trim(step) for step in build_steps(find_input(run), names, rows, self._shown)]

    def read_one(self, run_id: int, index: int) -> dict[str, Any] | None:
        """One step; None if there is no such run or step. Up to four queries."""
        run = _load_run(run_id)
        if run is None:
            return None
        if index == 0:
            return self._trim(build_input_step(find_input(run), self._shown))
        names = load_step_names([run.version_id])[run.version_id]
        if names and index > len(names):
            return None
        rows = list(list_attempts().filter(step__run=run_id, step__index=index).order_by("number"))
        if not names and not rows:
            return None
        name = names[index - 1] if names else rows[0].step.name
        return self._trim(build_step(index, name, rows, self._shown))

    def _trim(self, document: dict[str, Any]) -> dict[str, Any]:
        if not self._has_attempts:
            del document["attempts"]
        return document


def _load_run(run_id: int) -> Any:
    return Run.objects.filter(pk=run_id).values_list("input", "version_id", "outputs_removed_at", named=True).first()
