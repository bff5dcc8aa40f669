"""Issues on the page of a run: how they are named and linked, and on which page of an attempt's issues each stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import urljoin

from runs import models
from runs.history.json_lines import show_invisible

SEVERITY_NAMES = ("critical", "high", "medium", "low")
"""The most severe first: the order in which pages list issues."""

MAX_LINKS = 20
"""Issues that are named where they don't stand; it is said how many more there are."""
MAX_PLACE_LENGTH = 80
"""Characters of a pointer that a link shows."""


@dataclass(frozen=True, slots=True)
class IssueLink:
    """An issue by its name and its place; ``address`` is relative to the page of its run."""

    address: str
    severity: str
    title: str
    place: str
    """Its pointer, empty where it has none."""
    step: int
    number: int


def link_issue(step: int, number: int, issue: models.Issue, page: int = 1) -> IssueLink:
    """The link to an issue of attempt ``number`` of ``step``, which stands on this ``page`` of its issues."""
    return IssueLink(
        address=address_issue(step, number, issue.position, page),
        severity=issue.severity,
        title=name_issue(issue),
        place=show_place(issue),
        step=step,
        number=number,
    )


def name_issue(issue: models.Issue) -> str:
    """What pages call an issue: its audit, or its code in words where the engine itself raised it."""
    return show_invisible(issue.audit or issue.code.replace("_", " ").capitalize())


def show_place(issue: models.Issue) -> str:
    """The pointer of an issue, cut where it is long; empty where it has none."""
    path = show_invisible(issue.path or "")
    return path if len(path) <= MAX_PLACE_LENGTH else f"{path[: MAX_PLACE_LENGTH - 1]}…"


def anchor_attempt(step: int, number: int) -> str:
    """The id of an attempt on the page of its run."""
    return f"s{step}a{number}"


def anchor_issue(step: int, number: int, position: int) -> str:
    """The id of an issue among those of all attempts of a run."""
    return f"{anchor_attempt(step, number)}-i{position}"


def address_attempt(step: int, number: int) -> str:
    """Where an attempt is selected, relative to the page of its run."""
    return f"steps/{step}/attempts/{number}/"


def address_issue(step: int, number: int, position: int, page: int = 1) -> str:
    """Where an issue is, relative to the page of its run; of many issues of an attempt it is on a further ``page``."""
    return f"{address_attempt(step, number)}{f'?issues={page}' if page > 1 else ''}#i{position}"


def join_address(run_url: str, address: str) -> str:
    """``address``, relative to the page of a run at ``run_url``, for a link on any page."""
    return urljoin(run_url, address) if run_url else address


MAX_LISTED_ISSUES = 200
"""Issues of one attempt that are shown together; further ones are on further pages."""

_RANKS = {name: rank for rank, name in enumerate(SEVERITY_NAMES)}


@dataclass(frozen=True, slots=True)
class IssuePages:
    """Which issues of an attempt with too many for one page are shown: ``first`` to ``last`` of ``whole``."""

    number: int
    """Of the page, from 1."""
    first: int
    last: int
    whole: int

    @property
    def has_next(self) -> bool:
        return self.last < self.whole


def list_page(issues: Sequence[models.Issue], page: int = 1) -> Sequence[models.Issue]:
    """The issues of an attempt that stand on one of their pages."""
    ordered = sorted(issues, key=lambda issue: (_RANKS[issue.severity], issue.position))
    return ordered[(page - 1) * MAX_LISTED_ISSUES : page * MAX_LISTED_ISSUES]


def count_page(page: int, shown: int, whole: int) -> IssuePages | None:
    """What is to be said of a page with ``shown`` of ``whole`` issues; None where it shows all of them."""
    first = (page - 1) * MAX_LISTED_ISSUES
    return IssuePages(page, first + 1, first + shown, whole) if shown < whole else None


def find_pages(issues: Collection[models.Issue]) -> Mapping[int, int]:
    """The page of each issue of an attempt by its position, without those of the first.

    ``issues`` are all of them, in the order of their positions.
    """
    if len(issues) <= MAX_LISTED_ISSUES:
        return {}
    counts = Counter(issue.severity for issue in issues)
    places = dict(zip(SEVERITY_NAMES, accumulate((counts[name] for name in SEVERITY_NAMES), initial=0), strict=False))
    pages = {}
    for issue in issues:
        place = places[issue.severity]
        places[issue.severity] += 1
        if place >= MAX_LISTED_ISSUES:
            pages[issue.position] = place // MAX_LISTED_ISSUES + 1
    return pages
