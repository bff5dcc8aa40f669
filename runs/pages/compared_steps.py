"""The steps of two runs of a flow beside each other: which belong together, and how their last attempts differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.template.defaultfilters import filesizeformat

from flows.engine.usage import UNREPORTED_USAGE, TokenUsage, sum_usage
from runs import models
from runs.pages.attempt_rows import read_outputs
from runs.pages.attempt_view import IssueMark
from runs.pages.badges import SEVERITIES
from runs.pages.compared_figures import Counts, Figure, compare_counts, compare_durations, compare_issues, compare_usage
from runs.pages.compared_issues import IssueLine, list_issues, mark_lines, name_part
from runs.pages.compared_rows import Room, RunRows, StepPair, count_issues, find_outputs, pair_run_steps, read_issues
from runs.pages.json_lines import Listing, list_json
from runs.pages.output_diff import OutputDiff, compare_outputs
from runs.stored_history import read_usage


@dataclass(frozen=True, slots=True)
class StepSide:
    """A step in one of the runs. ``state`` is its last attempt's, ``number`` that attempt's; None if there is none."""

    run_id: int
    index: int
    name: str
    state: str
    number: int | None
    attempt_count: int
    counts: Counts
    """Issues of all its attempts."""
    seconds: float | None
    """From the begin of its first attempt to the end of its last one."""
    usage: TokenUsage
    is_local: bool
    issues: tuple[IssueLine, ...]
    issue_count: int
    """Issues of its last attempt; ``issues`` may have fewer."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of the last attempts. Without a ``diff`` a ``sentence`` says why; ``only`` is the one there is.

    What is laid out is the output on the right, or the only one. ``marks`` are its lines that issues point at, and
    ``prefix`` begins their ids.
    """

    diff: OutputDiff | None = None
    sentence: str = ""
    only: Listing | None = None
    prefix: str = ""
    marks: Mapping[int, tuple[IssueMark, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepComparison:
    """One step in both runs, or in one of them if only its version has it."""

    left: StepSide | None
    right: StepSide | None
    outputs: Outputs
    figures: tuple[Figure, ...]

    @property
    def shown(self) -> StepSide:
        side = self.right or self.left
        assert side is not None
        return side

    @property
    def sides(self) -> tuple[StepSide, ...]:
        return tuple(side for side in (self.left, self.right) if side is not None)

    @property
    def has_issues(self) -> bool:
        return any(side.issues for side in self.sides)

    @property
    def has_ended(self) -> bool:
        """Whether there is a last attempt that could have issues."""
        return any(side.number for side in self.sides)

    @property
    def id(self) -> str:
        return name_part(1 if self.right else 0, self.shown.index)


def compare_steps(left: RunRows, right: RunRows) -> tuple[StepComparison, ...]:
    """All steps of both runs: those of the right one in their order, and where they stood those that it lacks.

    Costs three queries, and reads no more outputs than there is room for.
    """
    pairs = list(pair_run_steps(left, right))
    room = Room()
    compared = [pair for pair in pairs if room.takes(find_outputs(left, right, pair))]
    read_outputs([row for pair in compared for row in find_outputs(left, right, pair)])
    issues = read_issues([*left.finals.values(), *right.finals.values()])
    counts = count_issues([left.run.pk, right.run.pk])
    return tuple(
        _compare_step(left, right, pair, issues=issues, counts=counts, has_room=pair in compared) for pair in pairs
    )


def _compare_step(
    left: RunRows,
    right: RunRows,
    pair: StepPair,
    *,
    issues: Mapping[int, Sequence[models.Issue]],
    counts: Mapping[tuple[int, int], Counter[str]],
    has_room: bool,
) -> StepComparison:
    rows = [side.finals.get(index or 0) for side, index in zip((left, right), pair, strict=True)]
    own = [issues.get(row.pk, ()) if row is not None else () for row in rows]
    listings = _list_outputs(rows) if has_room else (None, None)
    # Of two outputs the lines are those of the right one.
    laid_out = 1 if listings[1] is not None else 0
    lines = listings[laid_out]
    kept = {place.line for issue in own[laid_out] if lines is not None and (place := lines.find(issue.path))}
    outputs = _compare_final_outputs(rows, (left, right), listings, kept=kept, has_room=has_room)
    if outputs.diff is None and outputs.only is None:
        lines = None
    sides = [
        _view_side(
            side, index, own[place], own[1 - place], counts, place=place, lines=lines if place == laid_out else None
        )
        if index is not None
        else None
        for place, (side, index) in enumerate(zip((left, right), pair, strict=True))
    ]
    if lines is not None and (side := sides[laid_out]) is not None:
        outputs = replace(outputs, prefix=name_part(laid_out, side.index), marks=mark_lines(side.issues))
    figures = _list_figures(sides[0], sides[1]) if sides[0] and sides[1] else ()
    return StepComparison(sides[0], sides[1], outputs, figures)


def _list_outputs(rows: Sequence[models.Attempt | None]) -> tuple[Listing | None, Listing | None]:
    first, second = (
        list_json(row.output) if row is not None and row.has_output else None  # type: ignore[attr-defined]  # annotated
        for row in rows
    )
    return first, second


def _view_side(
    rows: RunRows,
    index: int,
    issues: Sequence[models.Issue],
    others: Sequence[models.Issue],
    counts: Mapping[tuple[int, int], Counter[str]],
    *,
    place: int,
    lines: Listing | None,
) -> StepSide:
    attempts = rows.attempts.get(index, ())
    final = rows.finals.get(index)
    found = counts.get((rows.run.pk, index), Counter())
    is_running = bool(attempts) and not attempts[-1].outcome and not rows.run.has_ended
    begun = [row.started_at for row in attempts if row.started_at]
    ended = [row.ended_at for row in attempts if row.ended_at]
    return StepSide(
        run_id=rows.run.pk,
        index=index,
        name=rows.name_step(index),
        state="running" if is_running else final.outcome if final is not None else "waiting",
        number=final.number if final is not None else None,
        attempt_count=len(attempts),
        counts=tuple((name, found[name]) for name in SEVERITIES),
        seconds=(max(ended) - min(begun)).total_seconds() if begun and ended else None,
        usage=sum_usage(
            read_usage(row.usage) if hasattr(row, "usage") else UNREPORTED_USAGE for row in attempts if row.outcome
        ),
        is_local=rows.is_local(index),
        issues=list_issues(final, issues, others, run_id=rows.run.pk, prefix=name_part(place, index), lines=lines),
        issue_count=len(issues),
    )


def _list_figures(left: StepSide, right: StepSide) -> tuple[Figure, ...]:
    figures = [
        compare_counts("Attempts", left.attempt_count, right.attempt_count),
        compare_issues("Issues of all attempts", left.counts, right.counts),
        compare_durations(left.seconds, right.seconds),
    ]
    if not (left.is_local and right.is_local):
        figures += compare_usage(left.usage, right.usage)
    if left.attempt_count and right.attempt_count:
        return tuple(figures)
    # What only one of the runs came to is neither more nor worse than in the other.
    return tuple(replace(figure, delta=None) for figure in figures)


def _compare_final_outputs(
    rows: Sequence[models.Attempt | None],
    sides: tuple[RunRows, RunRows],
    listings: tuple[Listing | None, Listing | None],
    *,
    kept: Collection[int],
    has_room: bool,
) -> Outputs:
    there = [
        (row, side.run.pk)
        for row, side in zip(rows, sides, strict=True)
        if row is not None and row.has_output  # type: ignore[attr-defined]  # annotated
    ]
    removed = [
        side.run.pk for row, side in zip(rows, sides, strict=True) if row is not None and side.run.outputs_removed_at
    ]
    if not there:
        if removed:
            return Outputs(sentence="Removed by the retention policy.")
        return Outputs(sentence="There is no output of this step to compare.")
    if not has_room:
        sizes = " and ".join(filesizeformat(row.stored_bytes) for row, _ in there)  # type: ignore[attr-defined]
        return Outputs(
            sentence=f"Too much to be shown here beside the steps above ({sizes}); open the attempts instead."
        )
    first, second = listings
    if first is None or second is None:
        sentence = f"Only #{there[0][1]} has an output of this step."
        if removed:
            sentence = f"Removed by the retention policy: the output of #{removed[0]}."
        return Outputs(sentence=sentence, only=first or second)
    diff = compare_outputs(there[0][0].output, there[1][0].output, first, second, kept=kept)
    return Outputs(diff, "" if diff else "These outputs are too long to be compared here; open the attempts instead.")
