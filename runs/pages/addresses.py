"""Addresses of lists: with filters, and of the pages of a list beside one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from runs.filter_fields import parse_run_number, shorten
from runs.filters import PAGING, PARAMETERS, RunFilters
from runs.paging import Found, cut_page


def link_runs(query: Any = "", **filters: Any) -> str:
    """The list of runs with a query string, or with these filters; empty ones are left out. ``since`` is ``from``."""
    values = {"from": filters.pop("since", None), **filters}
    query = query or urlencode({name: values[name] for name in PARAMETERS if values.get(name)})
    return reverse("runs:list") + (f"?{query}" if query else "")


def build_issues_url(flow: str = "", **filters: object) -> str:
    """The issues of a flow, by its name, with further filters; empty ones are left out."""
    names = ("version", "audit", "code", "step", "severity", "period")
    named = {"flow": flow, **{name: filters.get(name) for name in names}}
    return reverse("runs:issues", query={name: value for name, value in named.items() if value})


def read_exact_filters(query: Mapping[str, str], *, others: Collection[str] = ()) -> tuple[RunFilters, tuple[str, ...]]:
    """The filters of a query string, and sentences about values and names in it that are not valid.

    For pages that must not act on more runs than were asked for. ``others`` are names allowed beside the filters.
    """
    filters = RunFilters(query)
    return filters, (*(problem.message for problem in filters.problems), *filters.find_unknown_names(others))


def parse_paging(query: Mapping[str, str], problems: list[str]) -> tuple[int | None, int | None]:
    """``before`` and ``after`` of a list; what is not valid is left out, with a sentence added to ``problems``."""
    numbers: dict[str, int] = {}
    for name in PAGING:
        text = query.get(name, "")
        number = None if text.startswith("#") else parse_run_number(text)
        if number is not None:
            numbers[name] = number
        elif text:
            problems.append(f"“{shorten(text)}” is not a valid value of “{name}”; the newest are shown.")
    if len(numbers) == 2:
        problems.append("“before” and “after” can’t be combined; the newest are shown.")
        return None, None
    return numbers.get("before"), numbers.get("after")


@dataclass(frozen=True, slots=True)
class Pager:
    """Addresses of the pages of a list beside one; empty where there is none."""

    newer_url: str = ""
    older_url: str = ""
    newest_url: str = ""
    """The first page; empty on it."""
    searched_key: int | None = None
    """The key of the last row that was checked, where the search ended before the page was full."""
    is_upwards: bool = False
    """Whether newer rows than those of another page were searched."""

    @property
    def further_url(self) -> str:
        """Where a search continues that ended early; empty if it did not."""
        if self.searched_key is None:
            return ""
        return self.newer_url if self.is_upwards else self.older_url


def paginate(
    found: Found, *, page_size: int, before: int | None, after: int | None, build_url: Callable[..., str]
) -> tuple[Sequence[int], Pager]:
    """The keys of a page and its pager; ``build_url`` takes ``before`` or ``after``."""
    page = cut_page(found, limit=page_size, before=before, after=after)
    newest_url = build_url() if before is not None or after is not None else ""
    newer, older = ("" if values is None else build_url(**values) for values in (page.newer, page.older))
    return page.keys, Pager(newer, older, newest_url, page.searched_to, after is not None)
