"""Which issues of the attempts of a step are one and the same, and when each of them came and went. Pure.

The same finding in another attempt has the same fingerprint: audit, code and path. One attempt may hold several of a
fingerprint; they are paired off, those first that say the same. Items of a list shift when one is dropped: a finding
whose words name what it is about is also found again at a path that differs in nothing but indices.

An attempt fixes what it was looked at for and what was not found. Attempts without an output (interrupted, errored,
cancelled) were looked at for nothing, invalid ones for no more than came before the check that they failed, and an
audit that could not be evaluated has looked at nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from flows.engine.audits import AUDIT_ERROR
from flows.engine.history import Outcome
from flows.engine.json_value import dump_json
from flows.engine.output_schema import SCHEMA_MISMATCH
from flows.engine.typed_output import TYPE_MISMATCH
from runs import models

_INDEX = re.compile(r"\[\d+\]")
_NAMED = re.compile(r'[“"\d]')
"""Words that hold a quotation or a number are about one thing; without, they would fit any item of the list."""


class Check(IntEnum):
    """What an output goes through, in this order; it stops at the first check that it fails."""

    READ = 0
    """Was there a call of the tool, with arguments that can be read and sanitized?"""
    SCHEMA = 1
    TYPE = 2
    AUDITS = 3


_CHECKS = {SCHEMA_MISMATCH: Check.SCHEMA, TYPE_MISMATCH: Check.TYPE}
"""Of codes of issues that the engine raises; what else it raises about an output that it can't use comes first."""


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
        return (self.issue.audit, self.issue.code, self.issue.path)

    @property
    def saying(self) -> Hashable:
        """The fingerprint and the words."""
        return (*self.fingerprint, self.issue.description)

    @property
    def wherever(self) -> Hashable | None:
        """What stays the same when the item moves that it is about; None if that can't be told."""
        parts = (self.issue.path or "").split("/")
        words = _INDEX.sub("[]", self.issue.description)
        if not any(map(str.isdecimal, parts)) or not _NAMED.search(words):
            return None
        shape = tuple("" if part.isdecimal() else part for part in parts)
        return (self.issue.audit, self.issue.code, shape, words, dump_json(self.issue.context))


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """An attempt that brought something to judge, with what was found in it."""

    number: int
    reached: Check
    findings: tuple[Finding, ...]
    unevaluated: frozenset[str]
    """Audits that could not be evaluated: they say nothing about what they found before."""

    def has_looked_for(self, finding: Finding) -> bool:
        """Whether ``finding`` would have been found here again."""
        return finding.check <= self.reached and finding.issue.audit not in self.unevaluated


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

    def find(self, number: int, finding: Finding) -> None:
        """It is found in attempt ``number``."""
        if not self.sightings:
            self.sightings.append(Sighting(number, finding, Arrival.INTRODUCED))
        elif self.is_open:
            last = self.last
            last.found_again = Sighting(number, finding, Arrival.PERSISTED, origin=last.origin or last)
            self.sightings.append(last.found_again)
        else:
            self.sightings.append(Sighting(number, finding, Arrival.RETURNED, fixed_before=self.last.fixed_by))


def judge_attempt(number: int, outcome: str, issues: Iterable[models.Issue]) -> JudgedAttempt | None:
    """An attempt as matching looks at it; None if it brought nothing to judge, or is not judged yet."""
    if outcome in (Outcome.PASSED, Outcome.FAILED):
        findings = tuple(Finding(issue, Check.AUDITS) for issue in issues)
        reached = Check.AUDITS
    elif outcome == Outcome.INVALID:
        findings = tuple(Finding(issue, _CHECKS.get(issue.code, Check.READ)) for issue in issues)
        reached = max((finding.check for finding in findings), default=Check.READ)
    else:
        return None
    broken = frozenset(finding.issue.audit for finding in findings if finding.issue.code == AUDIT_ERROR)
    return JudgedAttempt(number, reached, findings, broken)


def trace_findings(attempts: Sequence[JudgedAttempt]) -> list[Track]:
    """The issues of the attempts of a step, each with all its sightings, in the order in which they were found."""
    tracks: list[Track] = []
    for attempt in attempts:
        known = [track for track in tracks if track.is_open]
        gone = sorted((track for track in tracks if not track.is_open), key=lambda track: -(track.last.fixed_by or 0))
        left = list(attempt.findings)
        known, left = _pair(known, left, attempt.number, lambda finding: finding.saying)
        known, left = _pair(known, left, attempt.number, lambda finding: finding.wherever)
        known, left = _pair(known, left, attempt.number, lambda finding: finding.fingerprint)
        gone, left = _pair(gone, left, attempt.number, lambda finding: finding.saying)
        _, left = _pair(gone, left, attempt.number, lambda finding: finding.fingerprint)
        for track in known:
            if attempt.has_looked_for(track.last.finding):
                track.last.fixed_by = attempt.number
        for finding in left:
            tracks.append(Track())
            tracks[-1].find(attempt.number, finding)
    return tracks


def _pair(
    tracks: Iterable[Track], findings: Iterable[Finding], number: int, key: Callable[[Finding], Hashable | None]
) -> tuple[list[Track], list[Finding]]:
    """Let tracks go on with findings that have the key of their last one, in order; gives what found no partner."""
    tracks = list(tracks)
    waiting: dict[Hashable, deque[Track]] = defaultdict(deque)
    for track in tracks:
        if (found := key(track.last.finding)) is not None:
            waiting[found].append(track)
    left: list[Finding] = []
    for finding in findings:
        found = key(finding)
        partners = waiting.get(found) if found is not None else None
        if partners:
            partners.popleft().find(number, finding)
        else:
            left.append(finding)
    return [track for track in tracks if track.last.number != number], left
