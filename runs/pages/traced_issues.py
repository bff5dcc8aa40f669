"""What became of the issues of a run, with a look into outputs where only those tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from runs import models
from runs.history.lifecycle import Judged, StepIssues, StepTrace, count_issues

ROOM = 150_000
"""Bytes of a step's stored outputs that are looked into for items that moved; others are taken for fixed and new."""


def trace_steps(
    rows: Sequence[models.Attempt], issues: Mapping[int, Sequence[models.Issue]], *, has_texts: bool = True
) -> Mapping[int, StepIssues]:
    """Trace the issues of all steps, by the index of the step, from rows of ``list_attempt_rows``.

    Without texts, which retention has removed, issues are counted only. Costs a query only where issues may have moved
    with their items, and outputs are not read yet.
    """
    steps: dict[int, list[Judged]] = {}
    for row in rows:
        steps.setdefault(row.step.index, []).append((row, issues.get(row.pk, ())))
    if not has_texts:
        return {index: count_issues(index, attempts) for index, attempts in steps.items()}
    begun = {index: StepTrace(index, attempts) for index, attempts in steps.items()}
    moving: list[models.Attempt] = []
    for index, attempts in steps.items():
        moving += _choose_readable(row for row, _ in attempts if row.number in begun[index].moving)
    outputs = _read_outputs(moving) if moving else {}
    known: dict[int, dict[int, Any]] = {}
    for row in (row for row in moving if row.pk in outputs):
        known.setdefault(row.step.index, {})[row.number] = outputs[row.pk]
    return {index: trace.finish(known.get(index, {})) for index, trace in begun.items()}


def _choose_readable(rows: Iterable[models.Attempt]) -> Iterator[models.Attempt]:
    """Those of a step that have an output and fit, in order.

    What is told of an issue must depend neither on other steps of the page nor on which attempts stand open.
    """
    room = ROOM
    for row in rows:
        size: int = row.stored_bytes  # type: ignore[attr-defined]  # annotated
        if row.has_output and size <= room:  # type: ignore[attr-defined]  # annotated
            room -= size
            yield row


def _read_outputs(rows: Collection[models.Attempt]) -> dict[int, Any]:
    """The outputs of these attempts by their keys."""
    unread = [row.pk for row in rows if "output" in row.get_deferred_fields()]
    found = {row.pk: row.output for row in rows if row.pk not in unread}
    if unread:
        found.update(models.Attempt.objects.order_by().filter(pk__in=unread).values_list("pk", "output"))
    return found
