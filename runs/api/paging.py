"""Pages of lists: found by the key that they begin or end at, not by counting.

Page 5,000 costs what page 1 costs, and what is added meanwhile moves nothing to another page. ``before`` and ``after``
compare keys: in a list from the greatest key down (runs, the newest first) ``next`` is what comes *before* the last
key, in a list from the least key up (flows by name) what comes *after* it.

    found = fetch_rows(SavedView.objects.all(), query, is_descending=True)
    return build_page(Page[SavedView], request, found)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from django.db.models import Q, QuerySet
from rest_framework.request import Request

from runs.documents.base import Page

Row = TypeVar("Row")
_Shape = TypeVar("_Shape", bound="Page[Any]")
PageLink = Mapping[str, str]
"""The paging parameters of another page; none of them: the list from its beginning."""


class Place(Protocol):
    """Which page is asked for: at most one of ``before`` and ``after`` is set, to a key or the parts of one."""

    @property
    def limit(self) -> int: ...
    @property
    def before(self) -> Any: ...
    @property
    def after(self) -> Any: ...


class Rows(NamedTuple, Generic[Row]):
    """The rows of a page in the order of the list, and where ``next`` and ``previous`` lead; None: nowhere."""

    rows: Sequence[Row]
    next: PageLink | None = None
    previous: PageLink | None = None


def fetch_rows(
    rows: QuerySet[Any, Row], place: Place, *, columns: Sequence[str] = ("pk",), is_descending: bool = False
) -> Rows[Row]:
    """The page of ``rows`` in the order of ``columns``, which make a unique key together. One query."""
    for key, lookup in ((place.before, "lt"), (place.after, "gt")):
        if key is not None:
            rows = rows.filter(_build_condition(columns, key if isinstance(key, tuple) else (key,), lookup))
    is_backward = (place.after if is_descending else place.before) is not None
    sign = "-" if is_descending != is_backward else ""
    read = list(rows.order_by(*(f"{sign}{column}" for column in columns))[: place.limit + 1])
    return cut_rows(read[::-1] if is_backward else read, place, columns=columns, is_descending=is_descending)


def cut_rows(
    read: Sequence[Row], place: Place, *, columns: Sequence[str] = ("pk",), is_descending: bool = False
) -> Rows[Row]:
    """The page made of the rows that were read, in the order of the list: one more than it holds, if there are."""
    is_backward = (place.after if is_descending else place.before) is not None
    has_more = len(read) > place.limit
    rows = read[-place.limit :] if is_backward else read[: place.limit]
    forward, back = ("before", "after") if is_descending else ("after", "before")
    # From a page without rows the other way leads to where the list begins.
    onward = {forward: _format_key(rows[-1], columns)} if rows else {}
    backward = {back: _format_key(rows[0], columns)} if rows else {}
    is_bounded = place.before is not None or place.after is not None
    return Rows(
        rows=rows,
        next=onward if is_backward or has_more else None,
        previous=backward if (has_more if is_backward else is_bounded) else None,
    )


def _build_condition(columns: Sequence[str], key: tuple[Any, ...], lookup: str) -> Q:
    """Rows whose ``columns``, compared one after the other, are less (``lt``) or greater (``gt``) than ``key``."""
    condition, equal = Q(pk__in=[]), Q()
    for column, value in zip(columns, key, strict=True):
        condition |= equal & Q(**{f"{column}__{lookup}": value})
        equal &= Q(**{column: value})
    return condition


def _format_key(row: Any, columns: Sequence[str]) -> str:
    if isinstance(row, dict):
        return ".".join(str(row[column]) for column in columns)
    return ".".join(str(attrgetter(column.replace("__", "."))(row)) for column in columns)


def build_page(shape: type[_Shape], request: Request, found: Rows[Any], items: Sequence[Any] | None = None) -> _Shape:
    """What a list answers: ``items``, by default the rows of ``found``, and the addresses of the pages beside it."""
    return shape.model_validate(
        {
            "items": found.rows if items is None else items,
            "next": _build_address(request, found.next),
            "previous": _build_address(request, found.previous),
        },
        context=request,
    )


def _build_address(request: Request, link: PageLink | None) -> str | None:
    if link is None:
        return None
    query = request.query_params.copy()
    for name in ("before", "after"):
        query.pop(name, None)
    query.update(link)
    text = query.urlencode()
    return request.build_absolute_uri(request.path + (f"?{text}" if text else ""))
