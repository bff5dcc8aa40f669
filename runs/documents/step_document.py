"""The steps of a run with their attempts as JSON documents, and which of it a document holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Prefetch

from flows.engine.history import Outcome, Severity, initial_attempt
from flows.models import FlowVersion
from runs import models
from runs.documents.attempt_document import build_attempt_document, build_running_document
from runs.models.history import AttemptQuerySet
from runs.stored_history import read_attempt

INPUT_NAME = "Input"
"""What step 0 is called."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Which part of the history documents hold. Leaving something out changes nothing else: sums stay whole."""

    minimum: Severity = Severity.LOW
    """Issues of lower severity are left out."""
    only_final: bool = False
    """Of each step only the attempt that decides: its last one that was not interrupted, or that still runs."""
    has_usage: bool = True


WHOLE = Shown()


def list_attempts() -> AttemptQuerySet:
    """Attempts with all that their documents are made of. Two queries, however many they are."""
    # The order that issues have by themselves would join all tables up to the run.
    issues = Prefetch("issues", models.Issue.objects.order_by("position"))
    return models.Attempt.objects.select_related("step", "usage", "sent").prefetch_related(issues)


def load_attempts(run_ids: Collection[int]) -> dict[int, list[models.Attempt]]:
    """The attempts of these runs by run, in order. Two queries."""
    rows = list_attempts().filter(step__run__in=run_ids).order_by("step__run_id", "step__index", "number")
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


def build_input_step(input: Any, shown: Shown = WHOLE) -> dict[str, Any]:
    """Step 0: the input as its own passed attempt."""
    attempt = build_input_attempt(input, shown)
    return {"index": 0, "name": INPUT_NAME, "outcome": Outcome.PASSED.value, "attempts": [attempt]}


def build_input_attempt(input: Any, shown: Shown = WHOLE) -> dict[str, Any]:
    """The only attempt of step 0."""
    return build_attempt_document(initial_attempt(input), has_usage=shown.has_usage)


def build_step(index: int, name: str, rows: Sequence[models.Attempt], shown: Shown = WHOLE) -> dict[str, Any]:
    """A step with its attempts; its outcome is that of the attempt that decided so far, None if there is none."""
    outcomes = [row.outcome for row in rows if row.outcome and row.outcome != Outcome.INTERRUPTED]
    return {
        "index": index,
        "name": name,
        "outcome": outcomes[-1] if outcomes else None,
        "attempts": [build_attempt(row, shown) for row in (_choose_final(rows) if shown.only_final else rows)],
    }


def build_steps(
    input: Any, names: Sequence[str], rows: Iterable[models.Attempt], shown: Shown = WHOLE
) -> list[dict[str, Any]]:
    """All steps of a run, also those that have not begun; without ``names`` those that have."""
    attempts: dict[int, list[models.Attempt]] = {}
    for row in rows:
        attempts.setdefault(row.step.index, []).append(row)
    if not names:
        begun = [build_step(index, own[0].step.name, own, shown) for index, own in sorted(attempts.items())]
        return [build_input_step(input, shown), *begun]
    own = [build_step(index, name, attempts.get(index, ()), shown) for index, name in enumerate(names, start=1)]
    return [build_input_step(input, shown), *own]


def build_attempt(row: models.Attempt, shown: Shown = WHOLE) -> dict[str, Any]:
    """The attempt that a row holds, whether it has ended or not."""
    if not row.outcome:
        return build_running_document(row, has_usage=shown.has_usage)
    return build_attempt_document(read_attempt(row), minimum=shown.minimum, has_usage=shown.has_usage)


def _choose_final(rows: Sequence[models.Attempt]) -> Sequence[models.Attempt]:
    counted = [row for row in rows if row.outcome != Outcome.INTERRUPTED]
    # Where every worker died, the last attempt shows how far it came.
    return (counted or rows)[-1:]
