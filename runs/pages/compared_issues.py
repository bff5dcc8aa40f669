"""Issues of the last attempts of a step in two runs: which both have, and where each of them leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import reverse

from runs import models
from runs.history.issue_links import address_issue, name_issue
from runs.history.json_lines import Listing, Place, show_invisible
from runs.history.texts import MAX_SUGGESTIONS, SHORT_TEXT, CutText, cut_text
from runs.pages.attempt_view import IssueMark
from runs.pages.badges import SEVERITIES

MAX_LISTED_ISSUES = 50
"""Issues of one attempt that are listed."""


@dataclass(frozen=True, slots=True)
class IssueLine:
    """One issue of a last attempt. ``is_shared``: the last attempt of the other run has it too, if that can be told."""

    id: str
    severity: str
    title: str
    code: str
    description: CutText
    suggestions: tuple[CutText, ...]
    more_suggestions: int
    path: str
    place: Place | None
    """The line that its path leads to; None where the output that is laid out is not its own."""
    line_id: str
    url: str
    """Of the issue on the page of its run."""
    document_url: str
    """Of its attempt as JSON."""
    is_shared: bool | None


def name_part(place: int, index: int) -> str:
    """The id of a step of the run on the left (0) or the right (1); ids of its lines and issues begin with it."""
    return f"{'ab'[place]}{index}"


def list_issues(
    row: models.Attempt | None,
    issues: Sequence[models.Issue],
    others: Sequence[models.Issue] | None,
    *,
    run_id: int,
    prefix: str,
    lines: Listing | None,
) -> tuple[IssueLine, ...]:
    """The gravest issues of attempt ``row``, whose ids begin with ``prefix``.

    ``others`` are those of the other run, None if it can't be told which of them are the same; ``lines`` is the output
    of the attempt if that is what is laid out.
    """
    if row is None:
        return ()
    left = Counter((issue.audit, issue.code, issue.path) for issue in others or ())
    ranks = list(SEVERITIES)
    page = reverse("runs:page", args=[run_id])
    document = reverse("runs:attempt-document", args=[run_id, row.step.index, row.number])
    found = []
    for issue in sorted(issues, key=lambda issue: (ranks.index(issue.severity), issue.position))[:MAX_LISTED_ISSUES]:
        key = (issue.audit, issue.code, issue.path)
        is_shared = None if others is None else left[key] > 0
        left[key] -= 1
        place = lines.find(issue.path) if lines else None
        found.append(
            IssueLine(
                id=f"{prefix}-i{issue.position}",
                severity=issue.severity,
                title=name_issue(issue),
                code=show_invisible(issue.code),
                description=cut_text(issue.description),
                suggestions=tuple(cut_text(str(words)) for words in issue.suggestions[:MAX_SUGGESTIONS]),
                more_suggestions=max(len(issue.suggestions) - MAX_SUGGESTIONS, 0),
                path=str(cut_text(issue.path or "", SHORT_TEXT)),
                place=place,
                line_id=f"{prefix}-l{place.line}" if place else "",
                url=f"{page}{address_issue(row.step.index, row.number, issue.position)}",
                document_url=document,
                is_shared=is_shared,
            )
        )
    return tuple(found)


def mark_lines(issues: Sequence[IssueLine]) -> dict[int, tuple[IssueMark, ...]]:
    """Which lines issues point at, by their number."""
    marks: dict[int, tuple[IssueMark, ...]] = {}
    for issue in issues:
        if issue.place:
            mark = IssueMark(issue.severity, issue.title, issue.id)
            marks[issue.place.line] = (*marks.get(issue.place.line, ()), mark)
    return marks
