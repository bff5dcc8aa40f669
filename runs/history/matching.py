"""Which issues of the attempts of a step are one and the same, and when each of them came and went. Pure.

The same finding in another attempt has the same fingerprint: audit, code and path. One attempt may hold several of a
fingerprint; they are paired off, those first that say the same. Items of a list shift when one is dropped: what is left
over is also found again at a path that differs in nothing but indices, if the outputs say that it leads to the same
item. Words prove nothing: a model that fixes one item and breaks another gets the same ones again.

An attempt fixes what it was checked for and what was not found. Attempts without an output (interrupted, errored,
cancelled) were checked for nothing, invalid ones for no more than came before the check that they failed, and an
audit that could not be evaluated has checked nothing. Nor has one with more findings than are kept: what is missing
among them may still be there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from flows.engine.audits import AUDIT_ERROR, MORE_ISSUES
from flows.engine.schemas import MORE_SCHEMA_MISMATCHES
from flows.engine.typed_output import MORE_TYPE_MISMATCHES
from runs import models
from runs.attempt_rules import Check, find_check, find_reached
from runs.history.pairing import ItemMoves

_OVERFLOWS = {(Check.SCHEMA, MORE_SCHEMA_MISMATCHES), (Check.TYPE, MORE_TYPE_MISMATCHES), (Check.AUDITS, MORE_ISSUES)}
"""What says that there were more findings than are kept."""

Source = tuple[Check, str]
"""What findings come from: a check, and of the audits which one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One issue of one attempt, and the check that raised it."""

    issue: models.Issue
    check: Check

    @property
    def fingerprint(self) -> Hashable:
        return self.place(self.issue.path)

    def place(self, path: str | None) -> Hashable:
        """The fingerprint that it would have at another path."""
        return (self.issue.audit, self.issue.code, path)

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
    unknown: frozenset[Source]
    """Where findings were cut, or an audit could not be evaluated: nothing is said of what came from there before."""

    def has_looked(self, source: Source) -> bool:
        """Whether what comes from there, and is not among the findings, was not there."""
        return source[0] <= self.reached and source not in self.unknown


@dataclass(slots=True)
class Sighting:
    """An issue in one of the attempts that it was found in."""

    number: int
    finding: Finding
    origin: Sighting | None = None
    """If the issue persisted: where it first appeared, or appeared again after a fix."""
    fixed_before: int | None = None
    """If the issue returned: the attempt in which it was gone."""
    fixed_by: int | None = None
    """The attempt that fixed it after this one."""
    found_again: Sighting | None = None
    """Where it was found next, if nothing fixed it before that."""

    @property
    def known_from(self) -> int:
        """The attempt that says the latest about it: before that one ended, less was known."""
        return self.fixed_by or (self.found_again or self).number


@dataclass(slots=True)
class Track:
    """One issue on its way through the attempts of a step."""

    place: int
    """Among all of them, in the order in which they were found first."""
    sightings: list[Sighting]

    @property
    def last(self) -> Sighting:
        return self.sightings[-1]

    def find_again(self, number: int, finding: Finding) -> None:
        """It is found in attempt ``number``, too."""
        last = self.last
        found = Sighting(number, finding, fixed_before=last.fixed_by)
        if last.fixed_by is None:
            found.origin, last.found_again = last.origin or last, found
        self.sightings.append(found)


def judge_attempt(number: int, outcome: str, issues: Iterable[models.Issue]) -> JudgedAttempt | None:
    """An attempt as matching reads it; None if it brought nothing to judge, or is not judged yet."""
    listed = list(issues)
    reached = find_reached(outcome, (issue.code for issue in listed))
    if reached is None:
        return None
    findings = tuple(Finding(issue, find_check(outcome, issue.code)) for issue in listed)
    unknown = frozenset(
        finding.source
        for finding in findings
        if finding.issue.code == AUDIT_ERROR or (finding.check, finding.issue.code) in _OVERFLOWS
    )
    return JudgedAttempt(number, reached, findings, unknown)


FindMoves = Callable[[int, int], ItemMoves | None]
"""What moved from the output of one attempt to that of a later one, by their numbers; None where that is not known."""


def trace_findings(attempts: Sequence[JudgedAttempt], find_moves: FindMoves) -> list[Track]:
    """The issues of the attempts of a step, each with all its sightings, in the order in which they were found.

    ``find_moves`` is asked only where an issue may have moved with its item.
    """
    tracks: list[Track] = []
    known: list[Track] = []
    gone: dict[Hashable, list[Track]] = {}
    for attempt in attempts:
        number = attempt.number
        left = _pair(known, attempt.findings, number)
        # Those that may have moved with their items, the latest first.
        waiting = [track for track in known if track.last.number != number and track.last.finding.shape is not None]
        for since in sorted({track.last.number for track in waiting}, reverse=True):
            shapes = {finding.shape for finding in left}
            moving = [one for one in waiting if one.last.number == since and one.last.finding.shape in shapes]
            if moving and (moves := find_moves(since, number)) is not None:
                left = _pair_moved(moving, left, number, moves)
        left = _bring_back(gone, known, left, number)
        for finding in left:
            track = Track(len(tracks), [Sighting(number, finding)])
            tracks.append(track)
            known.append(track)
        known = _settle(known, attempt, gone)
    return tracks


def _settle(known: Iterable[Track], attempt: JudgedAttempt, gone: dict[Hashable, list[Track]]) -> list[Track]:
    """Mark the tracks that ``attempt`` fixed and move them to ``gone``; returns the tracks that are still open."""
    left = []
    for track in known:
        last = track.last
        if last.number == attempt.number or not attempt.has_looked(last.finding.source):
            left.append(track)
            continue
        last.fixed_by = attempt.number
        gone.setdefault(last.finding.fingerprint, []).append(track)
    return left


def _bring_back(
    gone: dict[Hashable, list[Track]], known: list[Track], findings: list[Finding], number: int
) -> list[Finding]:
    """Let tracks that were fixed, the latest first, return with ``findings``; they are ``known`` again."""
    wanted = {finding.fingerprint for finding in findings} & gone.keys() if gone else ()
    if not wanted:
        return findings
    candidates = [track for fingerprint in wanted for track in gone.pop(fingerprint)]
    candidates.sort(key=lambda track: (-(track.last.fixed_by or 0), track.place))
    left = _pair(candidates, findings, number)
    # Tracks without a finding of their own stay gone.
    for track in candidates:
        if track.last.number == number:
            known.append(track)
        else:
            gone.setdefault(track.last.finding.fingerprint, []).append(track)
    known.sort(key=lambda track: track.place)
    return left


def _pair_moved(tracks: Sequence[Track], findings: list[Finding], number: int, moves: ItemMoves) -> list[Finding]:
    """Let tracks go on with findings about the same items, where those are elsewhere now."""
    shapes = {track.last.finding.shape for track in tracks}
    origins: dict[int, Hashable] = {
        id(finding): finding.place(path)
        for finding in findings
        if finding.shape in shapes and (path := moves.trace_back(finding.issue.path or "")) is not None
    }
    return _pair(tracks, findings, number, lambda finding: origins.get(id(finding)))


def _pair(
    tracks: Iterable[Track],
    findings: Sequence[Finding],
    number: int,
    came_from: Callable[[Finding], Hashable | None] = attrgetter("fingerprint"),
) -> list[Finding]:
    """Let tracks go on with findings of the fingerprint of their last one; gives the findings that are left.

    Of several of a fingerprint those go together that say the same, then those that come first. ``came_from`` gives the
    fingerprint that a finding had before, where that is another one.
    """
    waiting: dict[Hashable, list[Track]] = {}
    for track in tracks:
        waiting.setdefault(track.last.finding.fingerprint, []).append(track)
    if not waiting:
        return list(findings)
    claims: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        if (fingerprint := came_from(finding)) in waiting:
            claims.setdefault(fingerprint, []).append(finding)
    paired = set()
    for fingerprint, own in claims.items():
        for track, finding in _match_words(waiting[fingerprint], own):
            track.find_again(number, finding)
            paired.add(id(finding))
    return [finding for finding in findings if id(finding) not in paired]


def _match_words(tracks: Sequence[Track], findings: Sequence[Finding]) -> Iterator[tuple[Track, Finding]]:
    left = {track.place: track for track in tracks}
    unheard: dict[str, deque[Track]] = defaultdict(deque)
    for track in tracks:
        unheard[track.last.finding.issue.description].append(track)
    others = []
    for finding in findings:
        if same := unheard[finding.issue.description]:
            track = same.popleft()
            del left[track.place]
            yield track, finding
        else:
            others.append(finding)
    yield from zip(left.values(), others, strict=False)
