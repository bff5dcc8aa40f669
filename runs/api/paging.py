"""Pages of lists: found by the key that they begin or end at, not by counting.

Page 5,000 costs what page 1 costs, and what is added meanwhile moves nothing to another page. ``before`` and ``after``
compare keys: in a list from the greatest key down (runs, the newest first) ``next`` is what comes *before* the last
key, in a list from the least key up (flows by name) what comes *after* it.

    paging = read_paging(request.query_params, NAMES)
    page = read_page(Flow.objects.values("name", "title"), paging, column="name", key_of=itemgetter("name"))
    return answer_page(request, page, [describe(row) for row in page.rows])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import QuerySet
from django.http import QueryDict
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs.api.problems import InvalidQuery
from runs.paging import MAX_NUMBER, Found
from runs.paging import cut_page as cut_scan

DEFAULT_LIMIT = 50
MOST_ITEMS = 200
PAGING = ("limit", "before", "after")
"""Names of the query parameters: they belong into ``ApiView.parameters`` of every list."""
_LONGEST_TEXT = 200
_SHOWN = 40

Key = TypeVar("Key")
Row = TypeVar("Row")
Turn = Mapping[str, str]
"""The paging parameters of another page; none of them: the list from its beginning."""


@dataclass(frozen=True, slots=True)
class KeyForm(Generic[Key]):
    """How the keys of a list stand in addresses. ``read`` raises ``ValueError`` with a sentence."""

    read: Callable[[str], Key]
    write: Callable[[Key], str] = str


@dataclass(frozen=True, slots=True)
class Paging(Generic[Key]):
    """Which page is asked for: at most one of ``before`` and ``after`` is set."""

    form: KeyForm[Key]
    limit: int = DEFAULT_LIMIT
    before: Key | None = None
    after: Key | None = None

    def is_backward(self, *, is_descending: bool) -> bool:
        """Whether the page is asked for by its end, so that rows are read in the other direction."""
        return (self.after if is_descending else self.before) is not None

    @property
    def is_bounded(self) -> bool:
        """Whether the page begins or ends elsewhere than the list."""
        return self.before is not None or self.after is not None


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """The rows of a page in the order of the list, and where ``next`` and ``previous`` lead; None: nowhere."""

    rows: Sequence[Row]
    next: Turn | None
    previous: Turn | None


def _read_number(text: str) -> int:
    # What is larger than any number there is bounds nothing; Python reads no number of more than 4,300 digits.
    if not re.fullmatch(r"0*[1-9][0-9]*", text, re.ASCII) or len(text) > 4_000:
        raise ValueError(f"“{shorten(text)}” is not a whole number from 1 on.")
    return min(int(text), MAX_NUMBER)


def _read_name(text: str) -> str:
    has_no_text = not text or "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text)
    if has_no_text or len(text) > _LONGEST_TEXT:
        raise ValueError(f"“{shorten(text)}” is not a name of up to {_LONGEST_TEXT} characters.")
    return text


NUMBERS = KeyForm(_read_number)
"""Numbers from 1 on, such as those of runs and versions."""
NAMES = KeyForm(_read_name)
"""Names, such as those of flows."""


def shorten(text: str) -> str:
    """Text of an address as a sentence shows it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def read_paging(query: QueryDict, form: KeyForm[Key]) -> Paging[Key]:
    """The page that a query asks for. Raises ``InvalidQuery`` with all that is wrong."""
    paging, problems = find_paging(query, form)
    if problems:
        raise InvalidQuery(problems)
    return paging


def find_paging(query: QueryDict, form: KeyForm[Key]) -> tuple[Paging[Key], list[Problem]]:
    """The page that a query asks for, and what is wrong with its parameters, each by name."""
    problems = []
    limit = DEFAULT_LIMIT
    keys: dict[str, Key] = {}
    for name in PAGING:
        if name not in query:
            continue
        try:
            if name == "limit":
                limit = _read_limit(query.get(name, ""))
            else:
                keys[name] = form.read(query.get(name, ""))
        except ValueError as error:
            problems.append(Problem(name, str(error)))
    if len(keys) == 2:
        problems.append(Problem("after", "“before” and “after” can’t be combined."))
    return Paging(form, limit, keys.get("before"), keys.get("after")), problems


def _read_limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= MOST_ITEMS:
        raise ValueError(f"“{shorten(text)}” is not a number of items from 1 to {MOST_ITEMS}.")
    return int(text)


def cut_found(found: Found, paging: Paging[int]) -> Page[int]:
    """The page of what a scan of ``paging.limit + 1`` rows found, and where the scan can continue."""
    page = cut_scan(found, limit=paging.limit, before=paging.before, after=paging.after)
    return Page(page.keys, next=_format_turn(page.older), previous=_format_turn(page.newer))


def _format_turn(turn: Mapping[str, int] | None) -> Turn | None:
    return None if turn is None else {name: str(key) for name, key in turn.items()}


def read_page(
    rows: QuerySet[Any, Row],
    paging: Paging[Key],
    *,
    column: str,
    key_of: Callable[[Row], Key],
    is_descending: bool = False,
) -> Page[Row]:
    """The page of ``rows``, in the order of ``column``, whose values are keys and unique. Costs one query."""
    if paging.before is not None:
        rows = rows.filter(**{f"{column}__lt": paging.before})
    if paging.after is not None:
        rows = rows.filter(**{f"{column}__gt": paging.after})
    is_downwards = is_descending != paging.is_backward(is_descending=is_descending)
    ordered = rows.order_by(f"-{column}" if is_downwards else column)
    return cut_page(ordered[: paging.limit + 1], paging, key_of=key_of, is_descending=is_descending)


def cut_page(
    read: QuerySet[Any, Row] | Sequence[Row],
    paging: Paging[Key],
    *,
    key_of: Callable[[Row], Key],
    is_descending: bool = False,
) -> Page[Row]:
    """The page made of the rows that were read: one more than the page holds, if there are so many.

    They stand in the order of reading: of a page that is asked for by its end, from there back.
    """
    is_backward = paging.is_backward(is_descending=is_descending)
    found = list(read)
    is_more = len(found) > paging.limit
    rows = found[: paging.limit]
    if is_backward:
        rows.reverse()
    forward, back = ("before", "after") if is_descending else ("after", "before")
    # From a page without rows the other way leads to where the list begins.
    onward: Turn = {forward: paging.form.write(key_of(rows[-1]))} if rows else {}
    backward: Turn = {back: paging.form.write(key_of(rows[0]))} if rows else {}
    return Page(
        rows=rows,
        next=onward if is_backward or is_more else None,
        previous=backward if (is_more if is_backward else paging.is_bounded) else None,
    )


def answer_page(request: Request, page: Page[Any], items: Sequence[Mapping[str, Any]]) -> Response:
    """The answer with the ``items`` that the page’s rows were made into, ``next`` and ``previous`` also as headers."""
    addresses = {"next": _build_address(request, page.next), "prev": _build_address(request, page.previous)}
    links = ", ".join(f'<{address}>; rel="{name}"' for name, address in addresses.items() if address)
    document = {"items": items, "next": addresses["next"], "previous": addresses["prev"]}
    return Response(document, headers={"Link": links} if links else None)


def _build_address(request: Request, turn: Turn | None) -> str | None:
    if turn is None:
        return None
    query = request.query_params.copy()
    for name in ("before", "after"):
        query.pop(name, None)
    query.update(turn)
    text = query.urlencode()
    return request.build_absolute_uri(request.path + (f"?{text}" if text else ""))
