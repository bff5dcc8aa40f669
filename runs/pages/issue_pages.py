"""Which issues of an attempt with very many stand on which of its pages: the gravest come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from runs import models
from runs.pages.badges import SEVERITIES

MOST_ISSUES = 200
"""Issues of one attempt that are shown together; further ones are on further pages."""

_RANKS = {name: rank for rank, name in enumerate(SEVERITIES)}


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
    return ordered[(page - 1) * MOST_ISSUES : page * MOST_ISSUES]


def count_page(page: int, shown: int, whole: int) -> IssuePages | None:
    """What is to be said of a page with ``shown`` of ``whole`` issues; None where it shows all of them."""
    first = (page - 1) * MOST_ISSUES
    return IssuePages(page, first + 1, first + shown, whole) if shown < whole else None


def find_pages(issues: Collection[models.Issue]) -> Mapping[int, int]:
    """The page of each issue of an attempt by its position, without those of the first.

    ``issues`` are all of them, in the order of their positions.
    """
    if len(issues) <= MOST_ISSUES:
        return {}
    counts = Counter(issue.severity for issue in issues)
    places = dict(zip(SEVERITIES, accumulate((counts[name] for name in SEVERITIES), initial=0), strict=False))
    pages = {}
    for issue in issues:
        place = places[issue.severity]
        places[issue.severity] += 1
        if place >= MOST_ISSUES:
            pages[issue.position] = place // MOST_ISSUES + 1
    return pages
