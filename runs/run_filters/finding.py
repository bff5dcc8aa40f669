"""Finding runs in the order of their creation, newest first, at the same cost however many there are.

Each filter reads its runs from an index that ends with ``created_at`` and ``id``. With several filters one is read, and
its next runs are checked against the others: at most ``WINDOW`` of them, so that no query reads without bound. Where
that is not enough for a page, the result says how far it came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Max

from runs.models import Run
from runs.run_filters.conditions import Condition, Source, Text, list_conditions, list_day_bounds
from runs.run_filters.filters import RunFilters
from runs.run_filters.reading import read_run_number
from runs.search import SearchQuery, list_matching, read_query, select_matching

FIRST_LOOK = 300
"""Runs that are checked first: as a rule a page is among them."""
WINDOW = 20_000
"""Runs that are checked at most."""
MATCH_BATCH = 1_000
"""Runs that are matched with a search at a time."""


class Position(NamedTuple):
    """The place of a run in lists. ``created_at`` is as the database gives it, so that it compares exactly."""

    created_at: Any
    run_id: int


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs that match, the newest first, and how to go on."""

    positions: tuple[Position, ...]
    searched_to: Position | None
    """The last run that was checked where the search stopped early; None if ``ids`` are all, or as many as wanted."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of the runs."""
        return tuple(position.run_id for position in self.positions)

    @property
    def looked_to(self) -> int | None:
        """The number of the run at ``searched_to``; it is a valid ``before`` or ``after``."""
        return None if self.searched_to is None else self.searched_to.run_id


def find_runs(
    filters: RunFilters,
    *,
    before: int | Position | None = None,
    after: int | Position | None = None,
    newest: int | None = None,
    limit: int = 50,
) -> FoundRuns:
    """Up to ``limit`` runs that match: the newest behind ``before``, or the oldest ahead of ``after``.

    Both are positions, or numbers of runs, as in addresses. Runs with a higher number than ``newest`` are left out.
    Raises ``ValueError`` for a search that ``read_filters`` would not have let through.
    """
    bounds = list_day_bounds(filters)
    is_ascending = after is not None
    start = before if after is None else after
    if isinstance(start, int):
        start = _locate(start)
        if start is None and not is_ascending:
            return FoundRuns((), None)
    if newest is not None:
        bounds.append(Text("{column} <= %s", (newest,)))
    conditions = list(list_conditions(filters))
    span = _Span(tuple(bounds), is_ascending)
    matches = None
    if filters.search:
        number = read_run_number(filters.search)
        if number is not None and Run.objects.filter(pk=number).exists():
            return _build(_check([number], conditions, span, start)[:limit], None, span)
        matches = read_query(filters.search)
    found, searched_to = _find(conditions, span, start, limit, matches)
    return _build(found, searched_to, span)


def find_newest_run() -> int:
    """The highest run number that there is, 0 if there are no runs."""
    return Run.objects.aggregate(newest=Max("pk"))["newest"] or 0


@dataclass(frozen=True, slots=True)
class _Span:
    """In which direction runs are read, and what is true of the ``created_at`` and the number of each."""

    bounds: tuple[Text, ...]
    is_ascending: bool

    @property
    def order(self) -> str:
        return "ASC" if self.is_ascending else "DESC"

    def write(self, column: str, start: Position | None) -> Text:
        """What is true of the rows behind ``start``; ``column`` holds their runs' numbers."""
        parts = [Text(bound.sql.format(column=column), bound.parameters) for bound in self.bounds]
        if start is not None:
            sign = ">" if self.is_ascending else "<"
            # Its first half bounds the index: SQLite does not seek by OR.
            parts.append(
                Text(
                    f"created_at {sign}= %s AND (created_at {sign} %s OR (created_at = %s AND {column} {sign} %s))",
                    (start.created_at, start.created_at, start.created_at, start.run_id),
                )
            )
        sql = " AND ".join(part.sql for part in parts) or "1 = 1"
        return Text(sql, tuple(value for part in parts for value in part.parameters))

    def sort(self, found: Iterable[Position]) -> list[Position]:
        return sorted(found, reverse=not self.is_ascending)


def _locate(number: int) -> Position | None:
    """Where a run of this number is in lists; one that is gone, right behind the run with the next lower number."""
    sql = f"SELECT {_write_time()} FROM runs_run WHERE id <= %s ORDER BY id DESC LIMIT 1"  # noqa: S608  # see Text
    rows = _fetch(sql, (number,))
    return Position(rows[0][0], number) if rows else None


def _find(
    conditions: Sequence[Condition],
    span: _Span,
    start: Position | None,
    limit: int,
    query: SearchQuery | None,
) -> tuple[list[Position], Position | None]:
    """Up to ``limit`` runs in the order of reading, and the last one that was checked if there may be more."""
    first = next((condition for condition in conditions if condition.sources), None)
    sources = (Source(),) if first is None else first.sources
    rest = [condition for condition in conditions if condition is not first]
    if not rest and query is None:
        return _read(sources, span, start, limit), None
    found: list[Position] = []
    for look in (max(FIRST_LOOK, limit), WINDOW):
        candidates = _read(sources, span, start, look)
        ids = [candidate.run_id for candidate in candidates]
        checked = _check(ids, rest, span, None) if rest else candidates
        found += checked if query is None else _match(query, checked, limit - len(found))
        if len(found) >= limit or len(candidates) < look:
            return found[:limit], None
        start = candidates[-1]
        if query is not None and look != WINDOW:
            hits = list_matching(query, limit=WINDOW)
            if hits is not None:
                # All runs that match are known: the rarer the words, the fewer.
                left = _check(hits.ids, conditions, span, start)
                found += left if hits.is_exact else _match(query, left, limit - len(found))
                return found[:limit], None
    return found, start


def _read(sources: Sequence[Source], span: _Span, start: Position | None, limit: int) -> list[Position]:
    """The next ``limit`` runs of all ``sources`` together."""
    rows: list[Position] = []
    for source in sources:
        within = span.write(source.column, start)
        condition, order = Text("1 = 1"), ""
        if source.key:
            # PostgreSQL would know that a column which equals something puts nothing in order, and rather walk along
            # all runs where it expects to meet enough. Of one that is in an array it doesn't: only the index has this
            # order.
            sql = f"= ANY(ARRAY[{source.value.sql}])" if connection.vendor == "postgresql" else f"= {source.value.sql}"
            condition = Text(f"{source.key} {sql} AND {source.where.sql}", source.value.parameters)
            order = f"{source.key} {span.order}, "
        rows += [
            Position(*row)
            for row in _fetch(
                f"SELECT {_write_time()}, {source.column} FROM {source.table} "  # noqa: S608  # see Text
                f"WHERE {condition.sql} AND {within.sql} "
                f"ORDER BY {order}created_at {span.order}, {source.column} {span.order} LIMIT {limit}",
                (*condition.parameters, *source.where.parameters, *within.parameters),
            )
        ]
    return rows if len(sources) == 1 else span.sort(rows)[:limit]


def _check(
    numbers: Collection[int],
    conditions: Sequence[Condition],
    span: _Span,
    start: Position | None,
) -> list[Position]:
    """Those of ``numbers`` whose runs are in ``span`` behind ``start`` and meet all ``conditions``."""
    if not numbers:
        return []
    checks = [span.write("id", start), *(condition.check for condition in conditions)]
    among = ",".join(map(str, numbers))
    # PostgreSQL reads one text of a thousand numbers in half the time that it takes for as many constants.
    is_among = f"= ANY('{{{among}}}'::bigint[])" if connection.vendor == "postgresql" else f"IN ({among})"
    # Neither order nor limit nor another index: a planner would rather walk along all runs than look these up.
    table = "runs_run" if connection.vendor == "postgresql" else "runs_run NOT INDEXED"
    where = " AND ".join(check.sql for check in checks)
    rows = _fetch(
        f"SELECT {_write_time()}, id FROM {table} WHERE id {is_among} AND {where}",  # noqa: S608  # see Text
        tuple(value for check in checks for value in check.parameters),
    )
    return span.sort(Position(*row) for row in rows)


def _match(query: SearchQuery, candidates: Sequence[Position], limit: int) -> list[Position]:
    """The first ``limit`` of ``candidates`` that hold what is searched for."""
    found: list[Position] = []
    for begin in range(0, len(candidates), MATCH_BATCH):
        batch = candidates[begin : begin + MATCH_BATCH]
        matching = select_matching(query, [candidate.run_id for candidate in batch])
        found += [candidate for candidate in batch if candidate.run_id in matching]
        if len(found) >= limit:
            break
    return found[:limit]


def _build(found: Sequence[Position], searched_to: Position | None, span: _Span) -> FoundRuns:
    return FoundRuns(tuple(reversed(found) if span.is_ascending else found), searched_to)


def _write_time() -> str:
    """The time of creation as a position holds it: on SQLite the stored text, whatever number of digits that has."""
    return "created_at" if connection.vendor == "postgresql" else "created_at || ''"


def _fetch(sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
