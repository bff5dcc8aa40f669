"""The steps of two runs of a flow beside each other: which belong together, and how their last attempts differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from django.template.defaultfilters import filesizeformat

from flows.engine.usage import UNREPORTED_USAGE, TokenUsage, sum_usage
from runs import models
from runs.pages.attempt_rows import read_outputs
from runs.pages.badges import SEVERITIES
from runs.pages.compared_figures import Counts, Figure, compare_counts, compare_durations, compare_issues, compare_usage
from runs.pages.compared_rows import Room, RunRows, StepPair, count_issues, find_outputs, pair_run_steps, read_issues
from runs.pages.json_lines import Listing, list_json, show_invisible
from runs.pages.output_diff import OutputDiff, compare_outputs
from runs.stored_history import read_usage

MOST_ISSUES = 50
"""Issues of one attempt that are listed."""


@dataclass(frozen=True, slots=True)
class IssueLine:
    """One issue of a last attempt. ``is_shared``: the last attempt of the other run has it too."""

    severity: str
    title: str
    code: str
    description: str
    path: str
    is_shared: bool


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
    """The outputs of the last attempts. Without a ``diff`` a ``sentence`` says why; ``only`` is the one there is."""

    diff: OutputDiff | None = None
    sentence: str = ""
    only: Listing | None = None


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
        side = "b" if self.right else "a"
        return f"{side}{self.shown.index}"


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
    sides = [
        _view_side(side, index, own[place], _fingerprint(own[1 - place]), counts) if index is not None else None
        for place, (side, index) in enumerate(zip((left, right), pair, strict=True))
    ]
    figures = _list_figures(sides[0], sides[1]) if sides[0] and sides[1] else ()
    return StepComparison(sides[0], sides[1], _compare_final_outputs(rows, (left, right), has_room=has_room), figures)


def _fingerprint(issues: Sequence[models.Issue]) -> Counter[tuple[str, str, str | None]]:
    return Counter((issue.audit, issue.code, issue.path) for issue in issues)


def _view_side(
    rows: RunRows,
    index: int,
    issues: Sequence[models.Issue],
    others: Counter[tuple[str, str, str | None]],
    counts: Mapping[tuple[int, int], Counter[str]],
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
        issues=tuple(_view_issues(issues, others))[:MOST_ISSUES],
        issue_count=len(issues),
    )


def _view_issues(issues: Sequence[models.Issue], others: Counter[tuple[str, str, str | None]]) -> Iterator[IssueLine]:
    left = Counter(others)
    ranks = list(SEVERITIES)
    for issue in sorted(issues, key=lambda issue: (ranks.index(issue.severity), issue.position)):
        key = (issue.audit, issue.code, issue.path)
        is_shared = left[key] > 0
        left[key] -= 1
        yield IssueLine(
            severity=issue.severity,
            title=show_invisible(issue.audit or issue.code.replace("_", " ").capitalize()),
            code=show_invisible(issue.code),
            description=show_invisible(issue.description),
            path=show_invisible(issue.path or ""),
            is_shared=is_shared,
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
    rows: Sequence[models.Attempt | None], sides: tuple[RunRows, RunRows], *, has_room: bool
) -> Outputs:
    there = [
        (row, side.run.pk)
        for row, side in zip(rows, sides, strict=True)
        if row is not None and row.has_output  # type: ignore[attr-defined]  # annotated
    ]
    if not there:
        return Outputs(sentence="There is no output of this step to compare.")
    if not has_room:
        sizes = " and ".join(filesizeformat(row.stored_bytes) for row, _ in there)  # type: ignore[attr-defined]
        return Outputs(
            sentence=f"Too much to be shown here beside the steps above ({sizes}); open the attempts instead."
        )
    listings = [list_json(row.output) for row, _ in there]
    if len(there) == 1:
        return Outputs(sentence=f"Only #{there[0][1]} has an output of this step.", only=listings[0])
    diff = compare_outputs(there[0][0].output, there[1][0].output, *listings)
    return Outputs(diff, "" if diff else "These outputs are too long to be compared here; open the attempts instead.")
