"""Numbers of runs read off indexes, in order, from any number on.

A stream is the runs with one value of one thing: its rows lie in an index in the order of run numbers, so that the next
few from anywhere on cost the same however many there are. Several streams are read in one statement and merged.

The statements are written as text: there may be dozens of streams in one, and to have the ORM build each of them takes
longer than to execute them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from django.db import connection

from runs.prepared_select import LARGEST_NUMBER


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers of runs from ``lowest`` to ``highest``, both counted in, and which end is looked at first."""

    lowest: int = 1
    highest: int = LARGEST_NUMBER
    is_ascending: bool = False

    def cut(self, *, lowest: int = 1, highest: int = LARGEST_NUMBER) -> Self:
        """What of it lies within these bounds."""
        return replace(self, lowest=max(self.lowest, lowest), highest=min(self.highest, highest))

    def behind(self, number: int) -> Self:
        """What is left of it once ``number`` was looked at."""
        return self.cut(lowest=number + 1) if self.is_ascending else self.cut(highest=number - 1)

    def holds(self, number: int) -> bool:
        """Whether ``number`` lies in it."""
        return self.lowest <= number <= self.highest

    @property
    def is_empty(self) -> bool:
        """Whether no number lies in it."""
        return self.lowest > self.highest

    @property
    def order(self) -> str:
        """The direction of looking, as SQL says it."""
        return "ASC" if self.is_ascending else "DESC"


@dataclass(frozen=True, slots=True)
class Text:
    """SQL that is ours, with ``%s`` for each of its ``parameters``: all that came from somebody else is among those."""

    sql: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """The rows of ``table`` where ``key`` has ``value`` and ``where`` holds: each stands for one run, once.

    An index begins with ``key`` and ends with ``column``, the number of the run, in the same direction or, if
    ``is_reversed``, in the other one.
    """

    table: str
    column: str
    key: str
    value: Text
    where: Text = Text("1 = 1")
    is_reversed: bool = True

    def within(self, span: Span, limit: int) -> Text:
        """A query for the numbers of the first ``limit`` runs in ``span``."""
        # PostgreSQL would know that a column which equals something puts nothing in order, and rather walk along all
        # runs where it expects to meet enough. Of one that is in an array it doesn't: only the index has this order.
        has_value = f"= ANY(ARRAY[{self.value.sql}])" if connection.vendor == "postgresql" else f"= {self.value.sql}"
        key_order = "ASC" if span.is_ascending != self.is_reversed else "DESC"
        sql = (
            f"SELECT {self.column} AS number FROM {self.table} WHERE {self.key} {has_value} AND {self.where.sql} "  # noqa: S608  # see Text
            f"AND {self.column} BETWEEN %s AND %s "
            f"ORDER BY {self.key} {key_order}, {self.column} {span.order} LIMIT {limit}"
        )
        return Text(sql, (*self.value.parameters, *self.where.parameters, span.lowest, span.highest))


@dataclass(frozen=True, slots=True)
class RunStream:
    """The runs where ``where`` holds, for which there is an index of their numbers; by default all runs."""

    where: Text = Text("1 = 1")

    def within(self, span: Span, limit: int) -> Text:
        """A query for the numbers of the first ``limit`` runs in ``span``."""
        sql = (
            f"SELECT id AS number FROM runs_run WHERE {self.where.sql} AND id BETWEEN %s AND %s "  # noqa: S608  # see Text
            f"ORDER BY id {span.order} LIMIT {limit}"
        )
        return Text(sql, (*self.where.parameters, span.lowest, span.highest))


AnyStream = Stream | RunStream


def read_merged(streams: Sequence[AnyStream], span: Span, limit: int) -> list[int]:
    """The numbers of the first ``limit`` runs in ``span`` that are in any of ``streams``. One statement."""
    rows = fetch_rows(_unite(stream.within(span, limit) for stream in streams))
    return sorted({number for (number,) in rows}, reverse=not span.is_ascending)[:limit]


def count_ahead(groups: Sequence[Sequence[AnyStream]], span: Span, limit: int) -> list[tuple[int, int]]:
    """How many of the first ``limit`` runs each group of streams has in ``span``, and the number of the last of them.

    One statement, which reads at most ``limit`` rows of each stream. The number is 0 where there is no run.
    """
    last = "MAX" if span.is_ascending else "MIN"
    parts = []
    for position, streams in enumerate(groups):
        rows = _unite(stream.within(span, limit) for stream in streams)
        first = f"SELECT number FROM ({rows.sql}) AS merged ORDER BY number {span.order} LIMIT {limit}"  # noqa: S608  # see Text
        parts.append(Text(f"SELECT {position}, COUNT(*), {last}(number) FROM ({first}) AS first", rows.parameters))  # noqa: S608  # see Text
    found = sorted(fetch_rows(_join(parts)))
    return [(count, number or 0) for _, count, number in found]


def fetch_rows(text: Text) -> list[tuple[Any, ...]]:
    """The rows that a query gives."""
    with connection.cursor() as cursor:
        cursor.execute(text.sql, text.parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _unite(queries: Iterable[Text]) -> Text:
    # SQLite takes no limit in a part of a union, but in a table of one.
    return _join([Text(f"SELECT number FROM ({query.sql}) AS part", query.parameters) for query in queries])  # noqa: S608  # see Text


def _join(queries: Sequence[Text]) -> Text:
    sql = " UNION ALL ".join(query.sql for query in queries)
    return Text(sql, tuple(value for query in queries for value in query.parameters))
