"""The steps of two runs of a flow beside each other: which belong together, and how their last attempts differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.template.defaultfilters import filesizeformat

from flows.engine.history import UNREPORTED_USAGE, TokenUsage, sum_usage
from runs import models
from runs.history.json_lines import Listing
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.pages.attempt_rows import read_outputs
from runs.pages.attempt_view import IssueMark, list_what_came
from runs.pages.badges import SEVERITIES
from runs.pages.compared_figures import Counts, Figure, compare_counts, compare_durations, compare_issues, compare_usage
from runs.pages.compared_issues import IssueLine, list_issues, mark_lines, name_part
from runs.pages.compared_rows import Room, RunRows, StepPair, count_issues, find_outputs, pair_run_steps, read_issues
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
class LaidOut:
    """What the last attempt in a run brought, as lines; what is not ``is_usable`` came back instead of an output.

    ``marks`` are the lines that issues point at, and ``prefix`` begins their ids.
    """

    run_id: int
    lines: Listing
    is_usable: bool
    prefix: str
    marks: Mapping[int, tuple[IssueMark, ...]]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of the last attempts. Without a ``diff`` a ``sentence`` says why.

    A diff is laid out on the lines of the output on the right. ``marks`` are those that issues point at, and ``prefix``
    begins their ids. Without one, ``laid_out`` is what can be shown of each run.
    """

    diff: OutputDiff | None = None
    sentence: str = ""
    prefix: str = ""
    marks: Mapping[int, tuple[IssueMark, ...]] = field(default_factory=dict)
    laid_out: tuple[LaidOut, ...] = ()


@dataclass(frozen=True, slots=True)
class StepComparison:
    """One step in both runs, or in one of them if only its version has it."""

    left: StepSide | None
    right: StepSide | None
    outputs: Outputs
    figures: tuple[Figure, ...]
    issues_sentence: str = ""
    """Why it can't be told which issues both have; empty where that is told, or nothing to be told."""

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
    listings = [list_what_came(row) if row is not None and has_room and _has_brought(row) else None for row in rows]
    diff = _compare_outputs(rows, listings, own[1])
    sentence = "" if diff else _explain(rows, (left, right), has_room=has_room)
    if diff is not None:
        # Its lines are those of the output on the right.
        shown = [None, listings[1]]
    elif all(_has_output(row) for row in rows):
        shown = [None, None]
    else:
        shown = listings
    removed = [f"#{side.run.pk}" for side in (left, right) if side.run.outputs_removed_at] if all(own) else []
    sides = [
        _view_side(
            side, index, own[place], None if removed else own[1 - place], counts, place=place, lines=shown[place]
        )
        if index is not None
        else None
        for place, (side, index) in enumerate(zip((left, right), pair, strict=True))
    ]
    figures = _list_figures(sides[0], sides[1]) if sides[0] and sides[1] else ()
    laid_out = tuple(
        LaidOut(side.run_id, lines, _has_output(row), name_part(place, side.index), mark_lines(side.issues))
        for place, (side, lines, row) in enumerate(zip(sides, shown, rows, strict=True))
        if side is not None and lines is not None
    )
    if diff is not None:
        outputs = Outputs(diff, prefix=laid_out[0].prefix, marks=laid_out[0].marks)
    else:
        outputs = Outputs(sentence=sentence, laid_out=laid_out)
    sentence = (
        f"Shared issues are unknown: the texts of those of {' and '.join(removed)} were removed." if removed else ""
    )
    return StepComparison(sides[0], sides[1], outputs, figures, sentence)


def _has_output(row: models.Attempt | None) -> bool:
    return row is not None and bool(row.has_output)  # type: ignore[attr-defined]  # annotated


def _has_brought(row: models.Attempt) -> bool:
    return _has_output(row) or bool(row.has_raw_output)  # type: ignore[attr-defined]  # annotated


def _compare_outputs(
    rows: Sequence[models.Attempt | None], listings: Sequence[Listing | None], issues: Sequence[models.Issue]
) -> OutputDiff | None:
    """What differs in two outputs; lines that ``issues`` of the right one point at stay in view."""
    (old, new), (before, after) = rows, listings
    if old is None or new is None or before is None or after is None or not (_has_output(old) and _has_output(new)):
        return None
    kept = {place.line for issue in issues if (place := after.find(issue.path))}
    return compare_outputs(old.output, new.output, before, after, kept=kept)


def _view_side(
    rows: RunRows,
    index: int,
    issues: Sequence[models.Issue],
    others: Sequence[models.Issue] | None,
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


def _explain(rows: Sequence[models.Attempt | None], sides: tuple[RunRows, RunRows], *, has_room: bool) -> str:
    """Why there is no difference of two outputs."""
    both = list(zip(rows, (side.run for side in sides), strict=True))
    brought = [(row, run) for row, run in both if row is not None and _has_brought(row)]
    usable = [run for row, run in brought if _has_output(row)]
    removed = [run for row, run in both if row is not None and run.outputs_removed_at]
    if removed:
        whose = f": the output of #{removed[0].pk}" if brought else ""
        return f"Removed by the retention policy{whose}."
    if not brought:
        return "There is no output of this step to compare."
    if not has_room:
        sizes = " and ".join(filesizeformat(row.stored_bytes) for row, _ in brought)  # type: ignore[attr-defined]
        return f"Too much to be shown here beside the steps above ({sizes}); open the attempts instead."
    if len(usable) == 2:
        return "These outputs are too long to be compared here; open the attempts instead."
    if usable:
        return f"Only #{usable[0].pk} has {'a usable' if len(brought) == 2 else 'an'} output of this step."
    if len(brought) == 2:
        return "Neither run has a usable output of this step."
    return f"Only in #{brought[0][1].pk} anything came back in this step, and it is not usable as an output."
