"""What becomes of an issue from attempt to attempt of its step, in the words of the run page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from runs import models
from runs.pages.badges import SEVERITIES
from runs.pages.figures import format_count, format_plural
from runs.pages.issue_links import IssueLink, anchor_attempt, anchor_issue, link_issue
from runs.pages.issue_matching import (
    Arrival,
    JudgedAttempt,
    Sighting,
    Track,
    judge_attempt,
    trace_findings,
    trace_without_outputs,
)
from runs.pages.item_moves import ItemMoves

Judged = tuple[models.Attempt, Sequence[models.Issue]]
"""An attempt with its issues."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing that became of an issue. ``words`` go on with ``linked``, which leads to ``anchor``, and ``rest``."""

    kind: str
    """``introduced``, ``persisted``, ``returned``, ``fixed``, ``remains`` or ``unlisted``."""
    words: str
    linked: str = ""
    anchor: str = ""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.words}{self.linked}{self.rest}"


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How an issue came to be in its attempt, and what became of it afterwards."""

    anchor: str
    """Of the issue."""
    number: int
    """Of its attempt."""
    state: str
    """``introduced``, ``persisted`` or ``returned``."""
    fixed_by: int | None
    """The attempt that fixed it; None if it was found again, or not looked for since."""
    marks: tuple[Mark, ...]
    """The same for readers: at most one for how it came, and one for what became of it."""
    told_by: int
    """The attempt whose end brought the latest of the marks: before that, the page said less."""


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """So many issues that had the same course: ``words`` go on with ``linked``, which leads to ``anchor``."""

    words: str
    linked: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class StepIssues:
    """The issues of a step, traced over its attempts."""

    lifecycles: Mapping[int, Lifecycle] = field(default_factory=dict)
    """By the key of the issue's row."""
    parts: tuple[SummaryPart, ...] = ()
    """The sentence for the head of the step: “4 issues: ”, “3 fixed by attempt 2”, “, 1 persisted”."""
    fixed: Mapping[int, tuple[IssueLink, ...]] = field(default_factory=dict)
    """What an attempt fixed, by its number: the issues where they were found last, the gravest first."""

    @property
    def summary(self) -> str:
        """The sentence as plain text; empty if there were no issues."""
        return "".join(part.words + part.linked for part in self.parts)


@dataclass(frozen=True, slots=True)
class BegunTrace:
    """The issues of a step, traced without a look into its outputs."""

    step: int
    judged: Sequence[JudgedAttempt]
    tracks: Sequence[Track]
    moving: frozenset[int]
    """The numbers of attempts whose outputs may show that an issue moved with its item."""


def begin_trace(step: int, attempts: Iterable[Judged]) -> BegunTrace:
    """Trace the issues of the attempts of step ``step``, in their order, as far as that goes without outputs."""
    read = (judge_attempt(row.number, row.outcome, issues) for row, issues in attempts)
    judged = [attempt for attempt in read if attempt is not None]
    return BegunTrace(step, judged, *trace_without_outputs(judged))


def finish_trace(begun: BegunTrace, outputs: Mapping[int, Any]) -> StepIssues:
    """What became of the issues of a step. ``issue_matching`` has the rules.

    ``outputs`` are those of attempts that are ``moving``, by their numbers, as far as they are known.
    """
    step, judged = begun.step, begun.judged

    @cache
    def find_moves(old: int, new: int) -> ItemMoves | None:
        return ItemMoves(outputs[old], outputs[new]) if old in outputs and new in outputs else None

    tracks = trace_findings(judged, find_moves) if len(outputs) > 1 else begun.tracks
    if len(judged) < 2:
        # Nothing to compare with: that all is new goes without saying.
        return StepIssues(parts=(SummaryPart(format_plural(len(tracks), "issue")),) if tracks else ())
    lifecycles = {}
    fixed: dict[int, list[IssueLink]] = {}
    for track in tracks:
        for sighting in track.sightings:
            issue = sighting.finding.issue
            lifecycles[issue.pk] = _describe_sighting(step, sighting, compared_in=judged[1].number)
            if sighting.fixed_by is not None:
                fixed.setdefault(sighting.fixed_by, []).append(link_issue(step, sighting.number, issue))
    ranks = list(SEVERITIES)
    return StepIssues(
        lifecycles,
        _summarise(step, tracks, judged[-1].number),
        {number: tuple(sorted(links, key=lambda link: ranks.index(link.severity))) for number, links in fixed.items()},
    )


def _describe_sighting(step: int, sighting: Sighting, *, compared_in: int) -> Lifecycle:
    marks = [_describe_arrival(step, sighting)]
    # Before there is an attempt to compare with, nothing is said.
    told_by = max(sighting.number, compared_in)
    if sighting.fixed_by is not None:
        told_by = sighting.fixed_by
        marks.append(Mark("fixed", "Fixed by ", f"attempt {told_by}", anchor_attempt(step, told_by)))
    elif sighting.found_again is not None:
        told_by = sighting.found_again.number
        marks.append(Mark("remains", "Still there in ", f"attempt {told_by}", _anchor(step, sighting.found_again)))
    elif sighting.unlisted_in is not None:
        told_by = sighting.unlisted_in
        words = "Perhaps still there: not all issues are listed in "
        marks.append(Mark("unlisted", words, f"attempt {told_by}", anchor_attempt(step, told_by)))
    return Lifecycle(
        anchor=_anchor(step, sighting),
        number=sighting.number,
        state=sighting.arrival.value,
        fixed_by=sighting.fixed_by,
        marks=tuple(marks),
        told_by=told_by,
    )


def _describe_arrival(step: int, sighting: Sighting) -> Mark:
    if sighting.origin is not None:
        origin = sighting.origin
        was = link_issue(step, origin.number, origin.finding.issue).place
        moved = origin.finding.issue.path != sighting.finding.issue.path
        rest = f", there at {was}" if moved else ""
        linked = f"attempt {origin.number}"
        return Mark(Arrival.PERSISTED.value, "Persisted since ", linked, _anchor(step, origin), rest)
    if sighting.fixed_before is not None:
        number = sighting.fixed_before
        return Mark(
            Arrival.RETURNED.value, "Returned, was fixed in ", f"attempt {number}", anchor_attempt(step, number)
        )
    if sighting.unlisted_before is not None:
        number = sighting.unlisted_before
        words = "New here, or not listed before: not all issues are in "
        return Mark(Arrival.INTRODUCED.value, words, f"attempt {number}", anchor_attempt(step, number))
    return Mark(Arrival.INTRODUCED.value, "New here")


def _anchor(step: int, sighting: Sighting) -> str:
    return anchor_issue(step, sighting.number, sighting.finding.issue.position)


def _summarise(step: int, tracks: Sequence[Track], latest: int) -> tuple[SummaryPart, ...]:
    """Group issues by their course: fixed ones by the attempt that did it, then those that are left."""
    courses = Counter(_find_course(track, latest) for track in tracks)
    head = format_plural(len(tracks), "issue")
    parts: list[SummaryPart] = []
    for (rank, number), count in sorted(courses.items()):
        begin = f"{head}: " if not parts else ", "
        how_many = format_count(count) if len(courses) > 1 else "all" if count > 1 and rank < _UNLISTED else ""
        linked = f"attempt {number}" if number else ""
        words = f"{begin}{how_many} {_COURSES[rank]}" if how_many else f"{begin}{_COURSES[rank]}"
        parts.append(SummaryPart(words, linked, anchor_attempt(step, number) if number else ""))
    return tuple(parts)


_COURSES = (
    "fixed by ",
    "persisted",
    "returned in ",
    "new in ",
    "listed first in ",
    "perhaps still there, not all are listed in ",
    "not checked again since ",
)
_UNLISTED, _UNCHECKED = 5, 6


def _find_course(track: Track, latest: int) -> tuple[int, int]:
    """The place of an issue's course in ``_COURSES``, and the attempt that belongs to it, 0 for none."""
    last = track.last
    if last.fixed_by is not None:
        return 0, last.fixed_by
    if last.unlisted_in is not None:
        return _UNLISTED, last.unlisted_in
    if last.number != latest:
        return _UNCHECKED, last.number
    if last.arrival is Arrival.PERSISTED:
        return 1, 0
    if last.arrival is Arrival.RETURNED:
        return 2, last.number
    return (3 if last.unlisted_before is None else 4), last.number
