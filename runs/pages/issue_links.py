"""How one part of a run's page names an issue that stands in another, and leads to it."""

from __future__ import annotations

from dataclasses import dataclass

from runs import models
from runs.pages.json_lines import show_invisible

LONGEST_PLACE = 80
"""Characters of a pointer that a link shows."""


@dataclass(frozen=True, slots=True)
class IssueLink:
    """An issue by its name and its place; ``anchor`` leads to it on the page of its run."""

    anchor: str
    severity: str
    title: str
    place: str
    """Its pointer, empty where it has none."""
    step: int
    number: int


def link_issue(step: int, number: int, issue: models.Issue) -> IssueLink:
    """The link to an issue of attempt ``number`` of ``step``."""
    path = show_invisible(issue.path or "")
    return IssueLink(
        anchor=anchor_issue(step, number, issue.position),
        severity=issue.severity,
        title=name_issue(issue),
        place=path if len(path) <= LONGEST_PLACE else f"{path[: LONGEST_PLACE - 1]}…",
        step=step,
        number=number,
    )


def name_issue(issue: models.Issue) -> str:
    """What pages call an issue: its audit, or its code in words where the engine itself raised it."""
    return show_invisible(issue.audit or issue.code.replace("_", " ").capitalize())


def anchor_attempt(step: int, number: int) -> str:
    """The id of an attempt on the page of its run."""
    return f"s{step}a{number}"


def anchor_issue(step: int, number: int, position: int) -> str:
    """The id of an issue on the page of its run."""
    return f"{anchor_attempt(step, number)}-i{position}"
