"""Which issues of the attempts of a step are one and the same, and when each of them came and went. Pure.

The same finding in another attempt has the same fingerprint: audit, code and path. One attempt may hold several of a
fingerprint; they are paired off, those first that say the same. Items of a list shift when one is dropped: what is left
over is also found again at a path that differs in nothing but indices, if the outputs say that it leads to the same
item. Words prove nothing: a model that mends one item and breaks another gets the same ones again.

An attempt fixes what it was looked at for and what was not found. Attempts without an output (interrupted, errored,
cancelled) were looked at for nothing, invalid ones for no more than came before the check that they failed, and an
audit that could not be evaluated has looked at nothing. Where there were more findings than are kept, one that is
missing may still be there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from flows.engine.audits import AUDIT_ERROR, MORE_ISSUES
from flows.engine.output_schema import MORE_SCHEMA_MISMATCHES
from flows.engine.typed_output import MORE_TYPE_MISMATCHES
from runs import models
from runs.output_checks import Check, find_check, find_reached
from runs.pages.item_moves import ItemMoves

_OVERFLOWS = {(Check.SCHEMA, MORE_SCHEMA_MISMATCHES), (Check.TYPE, MORE_TYPE_MISMATCHES), (Check.AUDITS, MORE_ISSUES)}
"""What says that there were more findings than are kept."""

Source = tuple[Check, str]
"""What findings come from: a check, and of the audits which one."""


class Arrival(StrEnum):
    """How an issue came to be in an attempt."""

    INTRODUCED = "introduced"
    PERSISTED = "persisted"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class Finding:
    """One issue of one attempt, and the check that raised it."""

    issue: models.Issue
    check: Check

    @property
    def fingerprint(self) -> tuple[str, str, str | None]:
        return self.place(self.issue.path)

    def place(self, path: str | None) -> tuple[str, str, str | None]:
        """The fingerprint that it would have at another path."""
        return (self.issue.audit, self.issue.code, path)

    @property
    def saying(self) -> Hashable:
        """The fingerprint and the words."""
        return (*self.fingerprint, self.issue.description)

    @property
    def shape(self) -> Hashable | None:
        """What stays the same when an item moves that it is about; None if its path names no item of a list."""
        parts = (self.issue.path or "").split("/")
        if not any(map(str.isdecimal, parts)):
            return None
        return (self.issue.audit, self.issue.code, *("" if part.isdecimal() else part for part in parts))

    @property
    def source(self) -> Source:
        return self.check, self.issue.audit


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """An attempt that brought something to judge, with what was found in it."""

    number: int
    reached: Check
    findings: tuple[Finding, ...]
    unevaluated: frozenset[str]
    """Audits that could not be evaluated: they say nothing about what they found before."""
    cut: frozenset[Source]
    """Where there were more findings than are kept."""

    def has_looked(self, source: Source) -> bool:
        """Whether it was looked for what comes from there."""
        check, audit = source
        return check <= self.reached and audit not in self.unevaluated

    def lists_all(self, source: Source) -> bool:
        """Whether what comes from there, and is not among the findings, was not there."""
        return self.has_looked(source) and source not in self.cut


@dataclass(slots=True)
class Sighting:
    """An issue in one of the attempts that it was found in."""

    number: int
    finding: Finding
    arrival: Arrival
    origin: Sighting | None = None
    """Where it was found first since it came or returned; None if that is here."""
    fixed_before: int | None = None
    """Of one that returned: the attempt that had fixed it."""
    fixed_by: int | None = None
    """The attempt that fixed it after this one."""
    found_again: Sighting | None = None
    """Where it was found next, if nothing fixed it before that."""
    unlisted_in: int | None = None
    """The first attempt after this one that may have had it too: not all that was found there is listed."""
    unlisted_before: int | None = None
    """Of one that is new here: the attempt before, if it may have had it too."""


@dataclass(slots=True)
class Track:
    """One issue on its way through the attempts of a step."""

    sightings: list[Sighting] = field(default_factory=list)

    @property
    def last(self) -> Sighting:
        return self.sightings[-1]

    @property
    def is_open(self) -> bool:
        return self.last.fixed_by is None

    def find(self, number: int, finding: Finding, *, unlisted_before: int | None = None) -> None:
        """It is found in attempt ``number``."""
        if not self.sightings:
            self.sightings.append(Sighting(number, finding, Arrival.INTRODUCED, unlisted_before=unlisted_before))
        elif self.is_open:
            last = self.last
            last.found_again = Sighting(number, finding, Arrival.PERSISTED, origin=last.origin or last)
            self.sightings.append(last.found_again)
        else:
            self.sightings.append(Sighting(number, finding, Arrival.RETURNED, fixed_before=self.last.fixed_by))


def judge_attempt(number: int, outcome: str, issues: Iterable[models.Issue]) -> JudgedAttempt | None:
    """An attempt as matching looks at it; None if it brought nothing to judge, or is not judged yet."""
    listed = list(issues)
    reached = find_reached(outcome, (issue.code for issue in listed))
    if reached is None:
        return None
    findings = tuple(Finding(issue, find_check(outcome, issue.code)) for issue in listed)
    broken = frozenset(finding.issue.audit for finding in findings if finding.issue.code == AUDIT_ERROR)
    cut = frozenset(finding.source for finding in findings if (finding.check, finding.issue.code) in _OVERFLOWS)
    return JudgedAttempt(number, reached, findings, broken, cut)


FindMoves = Callable[[int, int], ItemMoves | None]
"""What moved from the output of one attempt to that of a later one, by their numbers; None where that is not known."""


def trace_without_outputs(attempts: Sequence[JudgedAttempt]) -> tuple[list[Track], frozenset[int]]:
    """Like ``trace_findings``, as if no item moved; with the attempts whose outputs may show that one did."""
    asked: set[int] = set()

    def ask(old: int, new: int) -> None:
        asked.update((old, new))

    return trace_findings(attempts, ask), frozenset(asked)


def trace_findings(attempts: Sequence[JudgedAttempt], find_moves: FindMoves) -> list[Track]:
    """The issues of the attempts of a step, each with all its sightings, in the order in which they were found."""
    tracks: list[Track] = []
    cut: dict[Source, int] = {}
    for attempt in attempts:
        known = [track for track in tracks if track.is_open]
        gone = sorted((track for track in tracks if not track.is_open), key=lambda track: -(track.last.fixed_by or 0))
        left = list(attempt.findings)
        known, left = _pair(known, left, attempt.number, lambda finding: finding.saying)
        known, left = _pair(known, left, attempt.number, _read_fingerprint)
        known, left = _pair_moved(known, left, attempt.number, find_moves)
        gone, left = _pair(gone, left, attempt.number, lambda finding: finding.saying)
        _, left = _pair(gone, left, attempt.number, _read_fingerprint)
        for track in known:
            source = track.last.finding.source
            if attempt.lists_all(source):
                track.last.fixed_by = attempt.number
            elif attempt.has_looked(source) and track.last.unlisted_in is None:
                track.last.unlisted_in = attempt.number
        for finding in left:
            tracks.append(Track())
            tracks[-1].find(attempt.number, finding, unlisted_before=_find_cut(finding, cut))
        cut = {source: number for source, number in cut.items() if not attempt.has_looked(source)}
        cut.update(dict.fromkeys(attempt.cut, attempt.number))
    return tracks


def _find_cut(finding: Finding, cut: Mapping[Source, int]) -> int | None:
    """The attempt before that may have had ``finding`` too, beyond those that are listed."""
    is_overflow = (finding.check, finding.issue.code) in _OVERFLOWS
    return None if is_overflow else cut.get(finding.source)


def _pair_moved(
    tracks: list[Track], findings: list[Finding], number: int, find_moves: FindMoves
) -> tuple[list[Track], list[Finding]]:
    """Let tracks go on with findings about the same items, where those stand elsewhere now."""
    shapes: dict[int, set[Hashable]] = defaultdict(set)
    for track in tracks:
        if (shape := track.last.finding.shape) is not None:
            shapes[track.last.number].add(shape)
    for since, known in sorted(shapes.items(), reverse=True):
        moved = [finding for finding in findings if finding.shape in known]
        moves = find_moves(since, number) if moved else None
        if moves is None:
            continue
        origins: dict[int, Hashable] = {
            id(finding): finding.place(path)
            for finding in moved
            if (path := moves.trace_back(finding.issue.path or "")) is not None
        }
        own = [track for track in tracks if track.last.number == since]
        _, findings = _pair(own, findings, number, _read_fingerprint, partial(_look_up, origins))
    return [track for track in tracks if track.last.number != number], findings


def _look_up(origins: Mapping[int, Hashable], finding: Finding) -> Hashable | None:
    return origins.get(id(finding))


def _read_fingerprint(finding: Finding) -> Hashable:
    return finding.fingerprint


def _pair(
    tracks: Iterable[Track],
    findings: Iterable[Finding],
    number: int,
    key: Callable[[Finding], Hashable | None],
    came_from: Callable[[Finding], Hashable | None] | None = None,
) -> tuple[list[Track], list[Finding]]:
    """Let tracks go on with findings that have the key of their last one, in order; gives what found no partner.

    ``came_from`` gives the key that a finding had before, where that is another one.
    """
    tracks = list(tracks)
    waiting: dict[Hashable, deque[Track]] = defaultdict(deque)
    for track in tracks:
        if (found := key(track.last.finding)) is not None:
            waiting[found].append(track)
    left: list[Finding] = []
    for finding in findings:
        found = (came_from or key)(finding)
        partners = waiting.get(found) if found is not None else None
        if partners:
            partners.popleft().find(number, finding)
        else:
            left.append(finding)
    return [track for track in tracks if track.last.number != number], left
