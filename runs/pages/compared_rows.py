"""The rows of two runs that are compared: their attempts by step, which steps belong together, and what fits a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Count

from flows.engine.differences import pair_steps
from flows.engine.errors import SpecError
from flows.engine.history import UNDECIDED
from flows.engine.spec import FlowSpec
from runs import models
from runs.models import Run
from runs.pages.attempt_rows import list_attempt_rows

ROOM = 600_000
"""Bytes of stored outputs that one page compares; further steps are left to the pages of their attempts."""


@dataclass(slots=True)
class RunRows:
    """A run with the rows of its attempts (see ``attempt_rows``), by step, and what is known of its steps."""

    run: Run
    spec: FlowSpec | None
    """None if this installation can't read it."""
    attempts: Mapping[int, Sequence[models.Attempt]]
    finals: dict[int, models.Attempt] = field(init=False)
    """The attempt of each step that decides."""

    def __post_init__(self) -> None:
        chosen = ((index, _choose_final(rows)) for index, rows in self.attempts.items())
        self.finals = {index: row for index, row in chosen if row is not None}

    @property
    def indices(self) -> range:
        """The numbers of its steps."""
        return range(1, self.run.step_count + 1)

    def name_step(self, index: int) -> str:
        """What a step is called, as far as that is known."""
        if self.spec is not None:
            return self.spec.steps[index - 1].name
        rows = self.attempts.get(index, ())
        return rows[0].step.name if rows else "Not begun"

    def is_local(self, index: int) -> bool:
        """Whether a step is computed here, without a model."""
        return self.spec is not None and self.spec.steps[index - 1].is_local


def _choose_final(rows: Sequence[models.Attempt]) -> models.Attempt | None:
    ended = [row for row in rows if row.outcome]
    decided = [row for row in ended if row.outcome not in UNDECIDED]
    return next(reversed(decided or ended), None)


def load_rows(run: Run) -> RunRows:
    """The attempts of a run, without their outputs."""
    attempts: dict[int, list[models.Attempt]] = {}
    for row in list_attempt_rows(run.pk):
        attempts.setdefault(row.step.index, []).append(row)
    try:
        spec = run.version.flow_spec
    except SpecError:
        spec = None
    return RunRows(run, spec, attempts)


StepPair = tuple[int | None, int | None]
"""The numbers of a step in both runs; None in one whose version lacks it."""


def pair_run_steps(left: RunRows, right: RunRows) -> Iterator[StepPair]:
    """All steps of both: those of the right one in their order, and where they stood those that it lacks."""
    if left.spec is not None and right.spec is not None:
        places = pair_steps(left.spec.steps, right.spec.steps)
        partners = {before + 1: after + 1 for before, after in places.items()}
    else:
        partners = {index: index for index in left.indices if index in right.indices}
    origins = {after: before for before, after in partners.items()}
    gone: dict[int, list[int]] = {}
    behind = 0
    for index in left.indices:
        behind = partners.get(index, behind)
        if index not in partners:
            gone.setdefault(behind, []).append(index)
    for after in (0, *right.indices):
        if after:
            yield origins.get(after), after
        yield from ((before, None) for before in gone.get(after, ()))


def find_outputs(left: RunRows, right: RunRows, pair: StepPair) -> list[models.Attempt]:
    """The attempts of a pair that brought its final outputs, or what came back instead: two, one or none."""
    rows = (side.finals.get(index) for side, index in zip((left, right), pair, strict=True) if index is not None)
    return [
        row
        for row in rows
        if row is not None and (row.has_output or row.has_raw_output)  # type: ignore[attr-defined]  # annotated
    ]


class Room:
    """What is left of the room for outputs."""

    def __init__(self) -> None:
        self._left = ROOM

    def takes(self, rows: Sequence[models.Attempt]) -> bool:
        """Take the room for the outputs of these attempts; False if there is not enough."""
        size = sum(row.stored_bytes for row in rows)  # type: ignore[attr-defined]  # annotated
        if size > self._left:
            return False
        self._left -= size
        return True


def read_issues(rows: Sequence[models.Attempt]) -> dict[int, list[models.Issue]]:
    """The issues of each of these attempts, by the attempt's key."""
    found: dict[int, list[models.Issue]] = {row.pk: [] for row in rows}
    issues = models.Issue.objects.filter(attempt__in=list(found)).defer("context", "added_fields")
    for issue in issues.order_by("attempt_id", "position"):
        found[issue.attempt_id].append(issue)
    return found


def count_issues(run_ids: Sequence[int]) -> Mapping[tuple[int, int], Counter[str]]:
    """How many issues of each severity the attempts of a step have, by run and number of the step."""
    found: dict[tuple[int, int], Counter[str]] = {}
    issues = models.Issue.objects.filter(attempt__step__run__in=run_ids).order_by()
    keys = issues.values_list("attempt__step__run_id", "attempt__step__index", "severity")
    for run_id, index, severity, count in keys.annotate(count=Count("pk")):
        found.setdefault((run_id, index), Counter())[severity] = count
    return found
