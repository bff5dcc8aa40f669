"""What becomes of an issue from attempt to attempt of its step, in the words of the run page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from runs import models
from runs.formatting import format_count, format_plural
from runs.history.issue_links import (
    MAX_LINKS,
    SEVERITY_NAMES,
    IssueLink,
    address_attempt,
    address_issue,
    anchor_attempt,
    anchor_issue,
    find_pages,
    link_issue,
    show_place,
)
from runs.history.matching import Arrival, JudgedAttempt, Sighting, Track, judge_attempt, trace_findings
from runs.history.pairing import ItemMoves

_MOST_COUNTED = 6
"""Attempts that are named with their issues; of more it is said how many there are."""
_RANKS = {name: rank for rank, name in enumerate(SEVERITY_NAMES)}

Judged = tuple[models.Attempt, Sequence[models.Issue]]
"""An attempt with its issues."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing that became of an issue. ``words`` go on with ``linked``, which leads to ``address``, and ``rest``."""

    kind: str
    """``introduced``, ``persisted``, ``returned``, ``fixed``, ``remains`` or ``unlisted``."""
    words: str
    linked: str = ""
    address: str = ""
    """From the page of the run."""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.words}{self.linked}{self.rest}"


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How an issue came to be in its attempt, and what became of it afterwards."""

    anchor: str
    """Of the issue."""
    state: str
    """``introduced``, ``persisted`` or ``returned``."""
    fixed_by: int | None
    """The attempt that fixed it; None if it was found again, or not looked for since."""
    marks: tuple[Mark, ...]
    """The same for readers: at most one for how it came, and one for what became of it."""


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """So many issues that had the same course: ``words`` go on with ``linked``, which leads to ``anchor``."""

    words: str
    linked: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class FixedIssues:
    """What an attempt fixed, each where it was found last."""

    links: tuple[IssueLink, ...]
    """The gravest ``MAX_LINKS``."""
    counts: Mapping[str, int]
    """How many there are, by severity."""

    @property
    def more(self) -> int:
        """How many are not among ``links``."""
        return sum(self.counts.values()) - len(self.links)


@dataclass(frozen=True, slots=True)
class StepIssues:
    """The issues of a step, traced over its attempts. What is told of each is put in words when somebody asks."""

    step: int = 0
    parts: tuple[SummaryPart, ...] = ()
    """The sentence for the head of the step: “4 issues: ”, “3 fixed by attempt 2”, “, 1 persisted”."""
    compared_in: int = 0
    """The first attempt that there is one to compare with: before it ended, the page told nothing."""
    sightings: Mapping[int, Sighting] = field(default_factory=dict)
    """By the key of the issue's row; empty while there is nothing to compare."""
    fixed: Mapping[int, Sequence[Sighting]] = field(default_factory=dict)
    """What an attempt fixed, by its number: the issues where they were found last."""
    pages: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """By attempt the pages of issues that stand on further ones, by their positions."""

    @property
    def summary(self) -> str:
        """The sentence as plain text; empty if there were no issues."""
        return "".join(part.words + part.linked for part in self.parts)

    def find_lifecycle(self, key: int) -> Lifecycle | None:
        """What became of the issue whose row has this key; None while that can't be told."""
        sighting = self.sightings.get(key)
        return None if sighting is None else self._describe(sighting)

    def list_news(self, number: int) -> Iterator[Lifecycle]:
        """Issues on the page of the run of which attempts from ``number`` on tell something that was not known."""
        for sighting in self.sightings.values():
            if sighting.number < number <= max(sighting.told_by, self.compared_in) and self._find_page(sighting) == 1:
                yield self._describe(sighting)

    def list_fixed(self, number: int) -> FixedIssues | None:
        """What attempt ``number`` fixed; None if that is nothing."""
        fixed = self.fixed.get(number, ())
        if not fixed:
            return None
        counts = Counter(sighting.finding.issue.severity for sighting in fixed)
        gravest = sorted(fixed, key=lambda sighting: _RANKS[sighting.finding.issue.severity])[:MAX_LINKS]
        return FixedIssues(tuple(map(self._link, gravest)), counts)

    def _describe(self, sighting: Sighting) -> Lifecycle:
        marks = [self._describe_arrival(sighting)]
        if sighting.fixed_by is not None:
            marks.append(self._mark_attempt("fixed", "Fixed by ", sighting.fixed_by))
        elif sighting.found_again is not None:
            marks.append(self._mark_sighting("remains", "Still there in ", sighting.found_again))
        elif sighting.unlisted_in is not None:
            words = "Perhaps still there: not all issues are listed in "
            marks.append(self._mark_attempt("unlisted", words, sighting.unlisted_in))
        return Lifecycle(
            anchor=anchor_issue(self.step, sighting.number, sighting.finding.issue.position),
            state=sighting.arrival.value,
            fixed_by=sighting.fixed_by,
            marks=tuple(marks),
        )

    def _describe_arrival(self, sighting: Sighting) -> Mark:
        if sighting.origin is not None:
            origin = sighting.origin.finding.issue
            moved = origin.path != sighting.finding.issue.path
            rest = f", there at {show_place(origin)}" if moved else ""
            return self._mark_sighting(Arrival.PERSISTED.value, "Persisted since ", sighting.origin, rest)
        if sighting.fixed_before is not None:
            return self._mark_attempt(Arrival.RETURNED.value, "Returned, was fixed in ", sighting.fixed_before)
        if sighting.unlisted_before is not None:
            words = "New here, or not listed before: not all issues are in "
            return self._mark_attempt(Arrival.INTRODUCED.value, words, sighting.unlisted_before)
        return Mark(Arrival.INTRODUCED.value, "New here")

    def _mark_attempt(self, kind: str, words: str, number: int) -> Mark:
        return Mark(kind, words, f"attempt {number}", address_attempt(self.step, number))

    def _mark_sighting(self, kind: str, words: str, sighting: Sighting, rest: str = "") -> Mark:
        return Mark(kind, words, f"attempt {sighting.number}", self._address(sighting), rest)

    def _address(self, sighting: Sighting) -> str:
        position = sighting.finding.issue.position
        return address_issue(self.step, sighting.number, position, self._find_page(sighting))

    def _link(self, sighting: Sighting) -> IssueLink:
        return link_issue(self.step, sighting.number, sighting.finding.issue, self._find_page(sighting))

    def _find_page(self, sighting: Sighting) -> int:
        return self.pages[sighting.number].get(sighting.finding.issue.position, 1)


class StepTrace:
    """The tracing of the issues of a step, which may need outputs on its way."""

    def __init__(self, step: int, attempts: Iterable[Judged]) -> None:
        """Trace the issues of the attempts of step ``step``, in their order, as far as that goes without outputs."""
        self._step = step
        self._judged = _judge(attempts)
        self._tracks: Sequence[Track] | None = None
        self._tracing = trace_findings(self._judged)
        self.moving: frozenset[int] = frozenset()
        """The numbers of attempts whose outputs may show that an issue moved with its item."""
        if len(self._judged) < 2:
            # Nothing to compare with: that all is new goes without saying.
            return
        try:
            first = next(self._tracing)
        except StopIteration as end:
            self._tracks = end.value
        else:
            self.moving = frozenset(
                attempt.number
                for attempt in self._judged
                if attempt.number >= first and any(finding.shape is not None for finding in attempt.findings)
            )

    def finish(self, outputs: Mapping[int, Any]) -> StepIssues:
        """What became of the issues of the step. ``issue_matching`` has the rules.

        ``outputs`` are those of attempts that are ``moving``, by their numbers, as far as they are known.
        """
        if len(self._judged) < 2:
            count = sum(len(attempt.findings) for attempt in self._judged)
            return StepIssues(self._step, (SummaryPart(format_plural(count, "issue")),) if count else ())
        tracks = self._go_on(outputs) if self._tracks is None else self._tracks
        sightings = [sighting for track in tracks for sighting in track.sightings]
        fixed: dict[int, list[Sighting]] = {}
        for sighting in sightings:
            if sighting.fixed_by is not None:
                fixed.setdefault(sighting.fixed_by, []).append(sighting)
        return StepIssues(
            self._step,
            _summarise(self._step, tracks, self._judged[-1].number),
            compared_in=self._judged[1].number,
            sightings={sighting.finding.issue.pk: sighting for sighting in sightings},
            fixed=fixed,
            pages={
                attempt.number: find_pages([finding.issue for finding in attempt.findings]) for attempt in self._judged
            },
        )

    def _go_on(self, outputs: Mapping[int, Any]) -> Sequence[Track]:
        @cache
        def find_moves(old: int, new: int) -> ItemMoves | None:
            return ItemMoves(outputs[old], outputs[new]) if old in outputs and new in outputs else None

        try:
            self._tracing.send(find_moves)
        except StopIteration as end:
            found: Sequence[Track] = end.value
            return found
        raise AssertionError("Tracing stops once only.")


def _judge(attempts: Iterable[Judged]) -> list[JudgedAttempt]:
    """Those that brought something to judge."""
    read = (judge_attempt(row.number, row.outcome, issues) for row, issues in attempts)
    return [attempt for attempt in read if attempt is not None]


def count_issues(step: int, attempts: Iterable[Judged]) -> StepIssues:
    """How many issues the attempts of step ``step`` have whose texts were removed.

    Their paths are gone too, so that different issues look like one: what became of each can't be told.
    """
    judged = _judge(attempts)
    counts = [(attempt.number, len(attempt.findings)) for attempt in judged if attempt.findings]
    if not counts:
        return StepIssues(step)
    head = format_plural(sum(count for _, count in counts), "issue")
    if len(judged) < 2:
        return StepIssues(step, (SummaryPart(head),))
    if len(counts) > _MOST_COUNTED:
        parts = [SummaryPart(f"{head} in {format_plural(len(counts), 'attempt')}")]
    else:
        begins = [f"{head}: ", *[", "] * (len(counts) - 1)]
        parts = [
            SummaryPart(f"{begin}{format_count(count)} in ", f"attempt {number}", anchor_attempt(step, number))
            for begin, (number, count) in zip(begins, counts, strict=True)
        ]
    reason = ". Their later state is unknown: their texts were removed."
    return StepIssues(step, (*parts, SummaryPart(reason)))


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
