"""Issues on the page of a run: how they are named and linked, on which page each stands, and what calls hid of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.core.paginator import Page, Paginator

from flows.engine.json_values import shorten
from flows.engine.judging import build_code
from flows.engine.prompt import select_issues
from flows.engine.spec import FlowSpec
from runs import models
from runs.history.texts import show_invisible

SEVERITY_NAMES = ("critical", "high", "medium", "low")
"""The most severe first: the order in which pages list issues."""

MAX_LINKS = 20
"""Issues that are named where they don't stand; it is said how many more there are."""
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


def name_issue(issue: models.Issue) -> str:
    """What pages call an issue: its audit, or its code in words where the engine itself raised it."""
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
    """The issues of an attempt that stand on one of their pages. Raises ``EmptyPage`` if there is no such page."""
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
