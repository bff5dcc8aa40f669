"""Two runs of a flow as rows: their attempts and issues by step, the figures of both, and how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from django.db.models import Count

from flows.engine.differences import pair_steps
from flows.engine.errors import SpecError
from flows.engine.history import UNDECIDED, TokenUsage
from flows.engine.spec import FlowSpec
from runs import models
from runs.formatting import NOTHING, format_cost, format_count, format_duration
from runs.models import Run
from runs.pages.attempt_rows import list_attempt_rows
from runs.pages.badges import SEVERITIES, Badge


@dataclass(slots=True)
class RunRows:
    """A run with the rows of its attempts (see ``attempt_rows``) by step, and what is known of its steps."""

    run: Run
    spec: FlowSpec | None
    """None if this installation can't read it."""
    attempts: Mapping[int, Sequence[models.Attempt]]
    finals: dict[int, models.Attempt] = field(init=False)
    """The attempt of each step that decides."""

    def __post_init__(self) -> None:
        chosen = ((index, _choose_final(rows)) for index, rows in self.attempts.items())
        self.finals = {index: row for index, row in chosen if row is not None}

    def name_step(self, index: int) -> str:
        """The name of a step, as far as it is known."""
        if self.spec is not None:
            return self.spec.steps[index - 1].name
        rows = self.attempts.get(index, ())
        return rows[0].step.name if rows else "Not begun"

    def is_local(self, index: int) -> bool:
        """Whether a step calls no model."""
        return self.spec is not None and self.spec.steps[index - 1].is_local


def _choose_final(rows: Sequence[models.Attempt]) -> models.Attempt | None:
    ended = [row for row in rows if row.outcome]
    decided = [row for row in ended if row.outcome not in UNDECIDED]
    return next(reversed(decided or ended), None)


def load_rows(run: Run) -> RunRows:
    """Load the attempts of a run, without their outputs."""
    attempts: dict[int, list[models.Attempt]] = {}
    for row in list_attempt_rows(run.pk):
        attempts.setdefault(row.step.index, []).append(row)
    try:
        spec = run.version.flow_spec
    except SpecError:
        spec = None
    return RunRows(run, spec, attempts)


def load_issues(rows: Sequence[models.Attempt]) -> dict[int, list[models.Issue]]:
    """Load the issues of these attempts by the attempt's key."""
    found: dict[int, list[models.Issue]] = {row.pk: [] for row in rows}
    issues = models.Issue.objects.filter(attempt__in=list(found)).defer("context", "added_fields")
    for issue in issues.order_by("attempt_id", "position"):
        found[issue.attempt_id].append(issue)
    return found


def count_issues(run_ids: Sequence[int]) -> Mapping[tuple[int, int], Counter[str]]:
    """Count the issues of each severity of all attempts, by run and number of the step."""
    found: dict[tuple[int, int], Counter[str]] = {}
    issues = models.Issue.objects.filter(attempt__step__run__in=run_ids).order_by()
    keys = issues.values_list("attempt__step__run_id", "attempt__step__index", "severity")
    for run_id, index, severity, count in keys.annotate(count=Count("pk")):
        found.setdefault((run_id, index), Counter())[severity] = count
    return found


StepPair = tuple[int | None, int | None]
"""The numbers of a step in both runs; None in one whose version lacks it."""


def pair_run_steps(old: RunRows, new: RunRows) -> Iterator[StepPair]:
    """All steps of both: those of the new run in their order, and where they stood those that it lacks."""
    old_indices, new_indices = (range(1, side.run.step_count + 1) for side in (old, new))
    if old.spec is not None and new.spec is not None:
        partners = {before + 1: after + 1 for before, after in pair_steps(old.spec.steps, new.spec.steps).items()}
    else:
        partners = {index: index for index in old_indices if index in new_indices}
    origins = {after: before for before, after in partners.items()}
    gone: dict[int, list[int]] = {}
    behind = 0
    for index in old_indices:
        behind = partners.get(index, behind)
        if index not in partners:
            gone.setdefault(behind, []).append(index)
    for after in (0, *new_indices):
        if after:
            yield origins.get(after), after
        yield from ((before, None) for before in gone.get(after, ()))


# ---------------------------------------------------------------------------------------------------------------------
# Figures

IssueCounts = tuple[tuple[Badge, int], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both runs. ``delta`` is the new one less the old one, and ``tone`` says whether that is good."""

    name: str
    old: str
    new: str
    delta: str = NOTHING
    tone: str = "quiet"
    counts: tuple[IssueCounts, IssueCounts] | None = None
    """Of issues, by severity, in place of the texts."""


_UNKNOWN = (NOTHING, "quiet")
_Amount = TypeVar("_Amount", int, float, Decimal)


def _compare(
    old: _Amount, new: _Amount, write: Callable[[Any], str], *, is_more_better: bool = False
) -> tuple[str, str]:
    """The difference with its sign, and its tone."""
    if old == new:
        return "same", "quiet"
    sign = "+" if new > old else "\N{MINUS SIGN}"
    return f"{sign}{write(abs(new - old))}", "passed" if (new > old) is is_more_better else "failed"


def compare_counts(name: str, old: int, new: int, *, of: tuple[int, int] | None = None) -> Figure:
    """Compare two whole numbers; ``of`` is what there is at most, and then more is better."""
    texts = [format_count(amount) for amount in (old, new)]
    if of is not None:
        texts = [f"{text} of {format_count(most)}" for text, most in zip(texts, of, strict=True)]
    return Figure(name, texts[0], texts[1], *_compare(old, new, format_count, is_more_better=of is not None))


def compare_issues(old: Counter[str], new: Counter[str]) -> Figure:
    """Compare the issues of all attempts."""
    counts = [tuple((badge, side[name]) for name, badge in SEVERITIES.items() if side[name]) for side in (old, new)]
    delta = _compare(old.total(), new.total(), format_count)
    return Figure("Issues of all attempts", "", "", *delta, (counts[0], counts[1]))


def compare_durations(old: float | None, new: float | None) -> Figure:
    """Compare two lengths of time in seconds; less than a millisecond is no difference."""
    delta = _UNKNOWN
    if old is not None and new is not None:
        delta = _compare(round(old, 3), round(new, 3), format_duration)
    return Figure("Duration", format_duration(old), format_duration(new), *delta)


def compare_usage(old: TokenUsage, new: TokenUsage) -> tuple[Figure, ...]:
    """Compare tokens and costs; the difference of costs that are lower bounds is not known."""
    delta = _UNKNOWN
    if old.cost is not None and new.cost is not None and not (old.unpriced or new.unpriced):
        delta = _compare(old.cost, new.cost, format_cost)
    return (
        compare_counts("Tokens in", old.prompt, new.prompt),
        compare_counts("Tokens out", old.completion, new.completion),
        Figure("Cost", format_cost(old.cost, old.unpriced), format_cost(new.cost, new.unpriced), *delta),
    )
