"""Issues on the page of a run: their names, links and pages, what calls hid of them, and what becomes of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.core.paginator import Page, Paginator

from flows.engine.audits import build_code
from flows.engine.json_values import shorten
from flows.engine.prompt import select_issues
from flows.engine.spec import FlowSpec
from runs import models
from runs.formatting import format_count, format_plural
from runs.history.matching import JudgedAttempt, Sighting, Track, judge_attempt, trace_findings
from runs.history.pairing import ItemMoves
from runs.history.texts import show_invisible

SEVERITY_NAMES = ("critical", "high", "medium", "low")
"""The most severe first: the order in which pages list issues."""

MAX_LINKS = 20
"""Issues that are named elsewhere than at their attempt; it is said how many more there are."""
MAX_LISTED_ISSUES = 200
"""Issues of one attempt that are shown together; further ones are on further pages."""
MAX_PLACE_LENGTH = 80
"""Characters of a pointer that a link shows."""


def link_issue(step: int, number: int, issue: models.Issue, page: int = 1) -> dict[str, Any]:
    """An issue of attempt ``number`` of ``step`` by its name and place, with its address from the page of its run.

    ``page`` is that of the issues of the attempt.
    """
    return {
        "address": address_issue(step, number, issue.position, page),
        "severity": issue.severity,
        "title": name_issue(issue),
        "place": show_place(issue),
        "step": step,
        "number": number,
    }


def name_issue(issue: Any) -> str:
    """What pages call what has an ``audit`` and a ``code``: by its audit, or its code in words where it has none."""
    return show_invisible(issue.audit or issue.code.replace("_", " ").capitalize())


def show_code(issue: models.Issue) -> str:
    """The code of an issue; empty where it is its name in other letters."""
    return "" if not issue.audit or issue.code == build_code(issue.audit) else show_invisible(issue.code)


def show_place(issue: models.Issue) -> str:
    """The pointer of an issue, cut where it is long; empty where it has none."""
    return shorten(show_invisible(issue.path or ""), MAX_PLACE_LENGTH)


def anchor_attempt(step: int, number: int) -> str:
    """The id of an attempt on the page of its run."""
    return f"s{step}a{number}"


def address_attempt(step: int, number: int) -> str:
    """Where an attempt is selected, relative to the page of its run."""
    return f"steps/{step}/attempts/{number}/"


def address_issue(step: int, number: int, position: int, page: int = 1) -> str:
    """Where an issue is, relative to the page of its run; of many issues of an attempt it is on a further ``page``."""
    return f"{address_attempt(step, number)}{f'?issues={page}' if page > 1 else ''}#i{position}"


def list_page(issues: Sequence[models.Issue], number: int = 1) -> Page[models.Issue]:
    """The issues of an attempt on one of their pages. Raises ``EmptyPage`` if there is no such page."""
    return Paginator(_sort(issues), MAX_LISTED_ISSUES).page(number)


def find_pages(issues: Collection[models.Issue]) -> Mapping[int, int]:
    """The page of each issue of an attempt by its position, if not all are on the first; ``issues`` are all of them."""
    if len(issues) <= MAX_LISTED_ISSUES:
        return {}
    return {issue.position: place // MAX_LISTED_ISSUES + 1 for place, issue in enumerate(_sort(issues))}


def _sort(issues: Iterable[models.Issue]) -> list[models.Issue]:
    """The most severe first, as pages list them."""
    return sorted(issues, key=lambda issue: (SEVERITY_NAMES.index(issue.severity), issue.position))


def find_hidden_issues(
    spec: FlowSpec, step: int, rows: Sequence[models.Attempt], issues: Mapping[int, Sequence[models.Issue]]
) -> dict[int, dict[str, Any]]:
    """Issues that the calls of one step hid, by the attempt's number; a local step calls no model and hides nothing.

    The first ``MAX_LINKS`` are linked.

    ``rows`` are attempts of the run in order of step and number, ``issues`` those of all of them by their keys. Follows
    the rule of the prompt, by the definition and the issues alone: no requests are read.
    """
    definition = spec.step(step)
    if definition.is_local:
        return {}
    minimum = definition.issue_severity_filter
    order = [*(position for position in definition.include_results if position < step), step]
    found: dict[int, dict[str, Any]] = {}
    count, links = 0, list[dict[str, Any]]()
    for row in (row for position in order for row in rows if row.step.index == position):
        if row.step.index == step:
            hidden_so_far = {"count": count, "links": list(links), "more": count - len(links)}
            found[row.number] = {"severity_filter": minimum.value, **hidden_so_far}
        own = issues.get(row.pk, ())
        shown = {one.position for one in select_issues(spec.step(row.step.index), row.outcome, own, minimum)}
        hidden = [issue for issue in own if issue.position not in shown]
        count += len(hidden)
        if named := hidden[: MAX_LINKS - len(links)]:
            pages = find_pages(own)
            links += [link_issue(row.step.index, row.number, one, pages.get(one.position, 1)) for one in named]
    return found


Judged = tuple[models.Attempt, Sequence[models.Issue]]
"""An attempt with its issues."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of issues: ``words`` go on with ``linked``, which leads to ``address``, and ``rest``."""

    kind: str
    """``introduced``, ``persisted``, ``returned``, ``fixed``, ``remains``; ``summary`` of several."""
    words: str
    linked: str = ""
    address: str = ""
    """From the page of the run."""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.words}{self.linked}{self.rest}"


class StepIssues:
    """The issues of a step, traced over its attempts. What became of each is put in words on request."""

    def __init__(
        self,
        step: int = 0,
        attempts: Iterable[Judged] = (),
        outputs: Mapping[int, Any] | None = None,
        *,
        has_texts: bool = True,
    ) -> None:
        """Trace the issues of the attempts of step ``step``, in their order; ``matching`` has the rules.

        ``outputs`` are those of attempts that are ``moving``, by their numbers, as far as they are known. Without
        texts, which retention removes with the paths, different issues look like one: they are counted only.
        """
        self.step = step
        read = (judge_attempt(row.number, row.outcome, issues) for row, issues in attempts)
        judged = [attempt for attempt in read if attempt is not None]
        asked: list[int] = []

        @cache
        def find_moves(old: int, new: int) -> ItemMoves | None:
            asked.append(old)
            return ItemMoves(outputs[old], outputs[new]) if outputs and old in outputs and new in outputs else None

        # With nothing to compare with, that all is new goes without saying.
        is_traced = has_texts and len(judged) > 1
        tracks = trace_findings(judged, find_moves) if is_traced else []
        self.parts = _summarise(step, tracks, judged[-1].number) if is_traced else _count(judged)
        """The sentence for the head of the step: “4 issues: ”, “3 fixed by attempt 2”, “, 1 persisted”."""
        self.latest = judged[-1].number if judged else 0
        """The last attempt that was judged."""
        self.moving = {
            attempt.number
            for attempt in judged
            if asked and attempt.number >= min(asked) and any(one.shape is not None for one in attempt.findings)
        }
        """The numbers of attempts whose outputs may show that an issue moved with its item."""
        self.fixed: dict[int, list[Sighting]] = {}
        """What an attempt fixed, by its number: the issues where they were found last."""
        self._sightings: dict[int, Sighting] = {}
        """By the key of the issue's row."""
        for sighting in (sighting for track in tracks for sighting in track.sightings):
            self._sightings[sighting.finding.issue.pk] = sighting
            if sighting.fixed_by is not None:
                self.fixed.setdefault(sighting.fixed_by, []).append(sighting)
        self._compared_in = judged[1].number if is_traced else 0
        """The first attempt that there is one to compare with: before it ended, the page said nothing of them."""
        self._pages = {one.number: find_pages([finding.issue for finding in one.findings]) for one in judged}

    def list_marks(self, key: int) -> list[Mark]:
        """How the issue whose row has this key came, and what became of it; nothing while that is not known."""
        return self._describe(self._sightings[key]) if key in self._sightings else []

    def list_new_marks(self, number: int, since: int) -> Iterator[tuple[int, list[Mark]]]:
        """Issues of attempt ``number`` of which attempts from ``since`` on show something new, by their positions.

        Only those on the first page.
        """
        for sighting in self._sightings.values():
            is_new = sighting.number < since <= max(sighting.known_from, self._compared_in)
            if sighting.number == number and is_new and self._find_page(sighting) == 1:
                yield sighting.finding.issue.position, self._describe(sighting)

    def list_fixed(self, number: int) -> dict[str, Any] | None:
        """What attempt ``number`` fixed, each where last found: the ``MAX_LINKS`` most severe; None if nothing."""
        fixed = self.fixed.get(number, ())
        if not fixed:
            return None
        most_severe = sorted(fixed, key=lambda sighting: SEVERITY_NAMES.index(sighting.finding.issue.severity))[
            :MAX_LINKS
        ]
        links = [link_issue(self.step, one.number, one.finding.issue, self._find_page(one)) for one in most_severe]
        return {"links": links, "more": len(fixed) - len(links)}

    def _describe(self, sighting: Sighting) -> list[Mark]:
        marks = [self._describe_arrival(sighting)]
        if sighting.fixed_by is not None:
            marks.append(self._mark("fixed", "Fixed by ", sighting.fixed_by))
        elif sighting.found_again is not None:
            marks.append(self._mark("remains", "Still there in ", sighting.found_again))
        return marks

    def _describe_arrival(self, sighting: Sighting) -> Mark:
        if sighting.origin is not None:
            origin = sighting.origin.finding.issue
            moved = origin.path != sighting.finding.issue.path
            return self._mark(
                "persisted", "Persisted since ", sighting.origin, f", there at {show_place(origin)}" if moved else ""
            )
        if sighting.fixed_before is not None:
            return self._mark("returned", "Returned, was fixed in ", sighting.fixed_before)
        return Mark("introduced", "New here")

    def _mark(self, kind: str, words: str, where: Sighting | int, rest: str = "") -> Mark:
        """Words that lead to an attempt, or to an issue in one."""
        if isinstance(where, int):
            return Mark(kind, words, f"attempt {where}", address_attempt(self.step, where), rest)
        address = address_issue(self.step, where.number, where.finding.issue.position, self._find_page(where))
        return Mark(kind, words, f"attempt {where.number}", address, rest)

    def _find_page(self, sighting: Sighting) -> int:
        return self._pages[sighting.number].get(sighting.finding.issue.position, 1)


def _count(judged: Sequence[JudgedAttempt]) -> Sequence[Mark]:
    count = sum(len(attempt.findings) for attempt in judged)
    unknown = ". Their later state is unknown: their texts were removed." if len(judged) > 1 else ""
    return (Mark("summary", f"{format_plural(count, 'issue')}{unknown}"),) if count else ()


_COURSES = ("fixed by ", "persisted", "returned in ", "new in ", "not checked again since ")
_FIXED, _PERSISTED, _RETURNED, _NEW, _UNCHECKED = range(len(_COURSES))


def _summarise(step: int, tracks: Sequence[Track], latest: int) -> Sequence[Mark]:
    """Group issues by their course: fixed ones by the attempt that did it, then those that are left."""
    courses = Counter(_find_course(track, latest) for track in tracks)
    parts: list[Mark] = []
    for (rank, number), count in sorted(courses.items()):
        begin = ", " if parts else f"{format_plural(len(tracks), 'issue')}: "
        how_many = f"{format_count(count)} " if len(courses) > 1 else "all " if count > 1 and rank < _UNCHECKED else ""
        where = (f"attempt {number}", address_attempt(step, number)) if number else ()
        parts.append(Mark("summary", f"{begin}{how_many}{_COURSES[rank]}", *where))
    return parts


def _find_course(track: Track, latest: int) -> tuple[int, int]:
    """The place of an issue's course in ``_COURSES``, and the attempt that belongs to it, 0 for none."""
    last = track.last
    if last.fixed_by is not None:
        return _FIXED, last.fixed_by
    if last.number != latest:
        return _UNCHECKED, last.number
    if last.origin is not None:
        return _PERSISTED, 0
    if last.fixed_before is not None:
        return _RETURNED, last.number
    return _NEW, last.number
