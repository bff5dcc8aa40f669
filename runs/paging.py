"""Keyset paging: pages of rows in the order of time and key, found by the row that they begin or end at.

Page 5,000 costs what page 1 costs, and new rows move no row to another page. Where a filter has no index, a window of
rows is checked; a page that is not full then says how far was scanned, and the next one continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models import BooleanField, Case, Func, Model, Q, QuerySet, TextField, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast

MAX_NUMBER = 2**63 - 1
"""The largest primary key that the databases hold."""
FIRST_SCAN_SIZE = 300
"""Rows that are checked first: as a rule a page is among them."""
WINDOW = 3_000
"""Rows that are checked for one page at most: runs in less than 100 ms, also if two filters ask for the same issue."""

PageLink = Mapping[str, Any]
"""The paging parameter of another page, ``before`` or ``after`` a key; empty for the first page."""


Select = Callable[[Sequence[int]], Collection[int]]
"""Gives those of some keys that are wanted."""


class Position(NamedTuple):
    """The place of a row in a list. ``at`` is the text of the database: SQLite stores times with 0, 3 or 6 digits."""

    at: str
    key: int

    @property
    def time(self) -> datetime:
        """The time itself, in UTC."""
        time = datetime.fromisoformat(self.at)
        return time if time.tzinfo else time.replace(tzinfo=UTC)


class IsOne(Func):
    """That a column has a value, for columns that an index begins with.

    PostgreSQL takes a plain ``=`` for a column without an order, and walks along all rows by time where it expects to
    meet enough. For an array of one value only the index has the order that is wanted.
    """

    output_field = BooleanField()
    template = "%(expressions)s"
    arg_joiner = " = "

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        """The comparison with an array."""
        return self.as_sql(compiler, connection, template="%(expressions)s])", arg_joiner=" = ANY(ARRAY[")


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows in the order of an index: by ``prefix``, which has one value in all of them, ``time`` and ``key``.

    Without ``time`` their keys alone are the order.
    """

    rows: QuerySet[Any, Any]
    time: str = "created_at"
    key: str = "pk"
    prefix: str = ""

    @classmethod
    def of(cls, rows: QuerySet[Any, Any], column: str, value: Any, **names: str) -> Stream:
        """Those of ``rows`` that have ``value`` in ``column``, which their index begins with."""
        return cls(rows.filter(IsOne(column, Value(value))), prefix=column, **names)

    def order(self, start: Position | None, *, is_ascending: bool) -> QuerySet[Any, Any]:
        """The rows behind ``start``, the newest first, or the oldest first if ascending."""
        order = [name if is_ascending else f"-{name}" for name in (self.prefix, self.time, self.key) if name]
        rows = self.rows.order_by(*order)
        if start is None:
            return rows
        sign = "gt" if is_ascending else "lt"
        if not self.time:
            return rows.filter(**{f"{self.key}__{sign}": start.key})
        at = Value(start.at, output_field=TextField())
        # The first condition bounds the index: SQLite does not seek by OR.
        behind = Q(**{f"{self.time}__{sign}": at}) | Q(**{f"{self.key}__{sign}": start.key})
        return rows.filter(Q(**{f"{self.time}__{sign}e": at}) & behind)

    def fetch(
        self, start: Position | None, limit: int, *, is_ascending: bool, matches: Combinable | None = None
    ) -> list[tuple[str, int, Any]]:
        """Time, key and ``matches`` of the next rows; that is not None for a row that is wanted."""
        column = Value(1) if matches is None else matches
        rows = self.order(start, is_ascending=is_ascending).annotate(time_text=_text(self.time), is_wanted=column)
        return list(rows.values_list("time_text", self.key, "is_wanted")[:limit])


def _text(time: str) -> Combinable:
    return Cast(time, TextField()) if time else Value("")


def build_flag(condition: Q) -> Combinable:
    """What ``scan`` takes as ``matches``: in WHERE the condition could make a database read another index."""
    return Case(When(condition, then=Value(1)))


def fetch_position(table: type[Model], key: int, *, time: str) -> Position | None:
    """The position of the row with this key; of one that is gone, right behind the row with the next lower key."""
    if not time:
        return Position("", key)
    earlier = table._default_manager.order_by("-pk").filter(pk__lte=min(key, MAX_NUMBER))
    at = earlier.values_list(_text(time), flat=True).first()
    return None if at is None else Position(at, key)


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a list, the newest first, and how to continue."""

    positions: Sequence[Position]
    searched_to: Position | None = None
    """The last row that was checked, where the window ended before enough was found."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The keys of the rows."""
        return tuple(position.key for position in self.positions)

    @property
    def searched_key(self) -> int | None:
        """The key of ``searched_to``."""
        return None if self.searched_to is None else self.searched_to.key

    @property
    def last(self) -> Position | None:
        """Where the next rows begin, for reading a whole list from the newest row on."""
        return self.searched_to or (self.positions[-1] if self.positions else None)


def scan(
    streams: Sequence[Stream],
    *,
    limit: int,
    before: Position | int | None = None,
    after: Position | int | None = None,
    matches: Combinable | None = None,
    select: Select | None = None,
    table: type[Model] | None = None,
) -> Found:
    """Up to ``limit`` rows: the newest behind ``before``, or the oldest ahead of ``after``.

    Both are positions, or keys in ``table``, which is that of the streams if it is not given. No row is in two streams.
    Those rows are wanted where ``matches`` is not NULL and whose keys ``select`` leaves; with either of the two,
    ``FIRST_SCAN_SIZE`` and then ``WINDOW`` rows are checked at most.
    """
    is_ascending = after is not None
    start = before if after is None else after
    if isinstance(start, int):
        start = fetch_position(table or streams[0].rows.model, start, time=streams[0].time)
        if start is None and not is_ascending:
            return Found(())
    found: list[Position] = []
    is_checked = matches is not None or select is not None
    for size in (max(FIRST_SCAN_SIZE, limit), WINDOW) if is_checked else (limit,):
        rows = _fetch(streams, start, size, is_ascending=is_ascending, matches=matches)
        kept = [Position(at, key) for at, key, is_wanted in rows if is_wanted is not None]
        if select is not None:
            selected = select([position.key for position in kept])
            kept = [position for position in kept if position.key in selected]
        found += kept
        if len(found) >= limit or len(rows) < size:
            start = None
            break
        start = Position(*rows[-1][:2])
    found = found[:limit]
    return Found(found[::-1] if is_ascending else found, start if len(found) < limit else None)


def _fetch(
    streams: Sequence[Stream], start: Position | None, limit: int, *, is_ascending: bool, matches: Combinable | None
) -> list[tuple[str, int, Any]]:
    """Time, key and ``matches`` of the next rows of all streams together."""
    rows = [row for one in streams for row in one.fetch(start, limit, is_ascending=is_ascending, matches=matches)]
    if len(streams) == 1:
        return rows
    return sorted(rows, key=itemgetter(0, 1), reverse=not is_ascending)[:limit]


@dataclass(frozen=True, slots=True)
class Page:
    """The keys of a page, the newest first, and where the pages beside it begin; None where there is none."""

    keys: Sequence[int]
    newer: PageLink | None
    older: PageLink | None
    searched_to: int | None = None


def cut_page(found: Found, *, limit: int, before: int | None, after: int | None) -> Page:
    """The page that ``found`` makes: one row more was asked for than the ``limit`` of a page."""
    ids = found.ids
    is_full = len(ids) > limit
    keys = ids[-limit:] if after is not None else ids[:limit]
    searched_to = None if is_full else found.searched_key
    if after is not None:
        onward = keys[0] if is_full else searched_to
        newer = None if onward is None else {"after": onward}
        last = keys[-1] if keys else searched_to or min(after + 1, MAX_NUMBER)
        return Page(keys, newer, {"before": last}, searched_to)
    onward = keys[-1] if is_full else searched_to
    older = None if onward is None else {"before": onward}
    if before is None:
        return Page(keys, None, older, searched_to)
    first = keys[0] if keys else searched_to or before - 1
    # Before row 1 there is nothing: the newest rows are what leads to all others.
    return Page(keys, {"after": first} if first > 0 else {}, older, searched_to)
