"""How one part of a run's page names an attempt or an issue that stands in another, and leads to it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urljoin

from django.urls import reverse

from runs import models
from runs.history.json_lines import show_invisible

MOST_LINKS = 20
"""Issues that are named where they don't stand; it is said how many more there are."""
LONGEST_PLACE = 80
"""Characters of a pointer that a link shows."""


@dataclass(frozen=True, slots=True)
class IssueLink:
    """An issue by its name and its place; ``address`` leads to it from the page of its run."""

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
    return path if len(path) <= LONGEST_PLACE else f"{path[: LONGEST_PLACE - 1]}…"


def anchor_attempt(step: int, number: int) -> str:
    """The id of an attempt on the page of its run."""
    return f"s{step}a{number}"


def anchor_issue(step: int, number: int, position: int) -> str:
    """The id of an issue on the page of its run."""
    return f"{anchor_attempt(step, number)}-i{position}"


def address_issue(step: int, number: int, position: int, page: int) -> str:
    """Where an issue is, relative to the page of its run: there, or on a further page of the issues of its attempt."""
    anchor = f"#{anchor_issue(step, number, position)}"
    if page == 1:
        return anchor
    attempt = reverse("runs:attempt", args=[0, step, number]).removeprefix(reverse("runs:page", args=[0]))
    return f"{attempt}?issues={page}{anchor}"


def join_address(run_url: str, address: str) -> str:
    """``address``, relative to the page of a run, for a link on another page; ``run_url`` is empty on that page."""
    return urljoin(run_url, address) if run_url else address
