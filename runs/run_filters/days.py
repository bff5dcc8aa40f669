"""Between which numbers the runs of some days lie.

Runs are numbered very nearly in the order in which they are created, so that the number to which a moment comes is
found by halving: some dozens of looks at the primary key. Where the order begins anew (``NumberBreak``), as at the
first run that was invented, each stretch of numbers is halved by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runs.number_breaks import MOST_BREAKS
from runs.prepared_select import LARGEST_NUMBER
from runs.run_filters.conditions import build_created_since, build_created_until
from runs.run_filters.filters import RunFilters
from runs.run_filters.streams import Span, Text, fetch_rows

DISORDER = 200
"""Runs that may have been created between two whose numbers are the other way round: as many as submit at once."""

_Bounds = Iterable[tuple[int, int]]
"""The lowest and the highest number of each of some stretches."""


def list_spans(filters: RunFilters, span: Span) -> Sequence[Span]:
    """The parts of ``span`` that hold all runs of the days that are asked for, in the order of looking; maybe others.

    One statement for each of the days, none without days.
    """
    spans = [span]
    if filters.since is not None:
        spans = _cut(spans, _list_since(build_created_since(filters.since)))
    if filters.until is not None:
        spans = _cut(spans, _list_until(build_created_until(filters.until)))
    return sorted(spans, key=lambda one: one.lowest, reverse=not span.is_ascending)


def _cut(spans: Sequence[Span], bounds: _Bounds) -> list[Span]:
    parts = [span.cut(lowest=lowest, highest=highest) for lowest, highest in bounds for span in spans]
    return [part for part in parts if not part.is_empty]


def _list_since(is_created: Text) -> _Bounds:
    """Where in each stretch the runs lie of which ``is_created`` is true: from a moment on."""
    first = f"""COALESCE((
        SELECT MIN(id) FROM (
            SELECT id, created_at FROM runs_run WHERE id BETWEEN lowest AND low - 1 ORDER BY id DESC LIMIT {DISORDER}
        ) AS near WHERE {is_created.sql}
    ), low)"""  # noqa: S608  # see Text
    return _halve(is_created.sql, f"{first}, highest", is_created.parameters * 2)


def _list_until(is_created: Text) -> _Bounds:
    """Where in each stretch the runs lie of which ``is_created`` is true: up to a moment."""
    last = f"""COALESCE((
        SELECT MAX(id) FROM (
            SELECT id, created_at FROM runs_run WHERE id BETWEEN low AND highest ORDER BY id LIMIT {DISORDER}
        ) AS near WHERE {is_created.sql}
    ), low - 1)"""  # noqa: S608  # see Text
    return _halve(f"NOT {is_created.sql}", f"lowest, {last}", is_created.parameters * 2)


def _halve(is_reached: str, bounds: str, parameters: tuple[object, ...]) -> _Bounds:
    """The ``bounds`` of each stretch, where ``low`` is the first number whose run has reached a moment.

    All numbers there are where there are too many stretches.
    """
    # ``low`` is one of ``size`` numbers: those of the stretch and the one behind it.
    sql = f"""
        WITH RECURSIVE edges(number) AS (
            SELECT CAST(1 AS bigint)
            UNION SELECT number FROM (SELECT number FROM runs_numberbreak LIMIT {MOST_BREAKS + 1}) AS kept
        ), stretches(lowest, highest) AS (
            SELECT number, LEAD(number - 1, 1, (SELECT MAX(id) FROM runs_run)) OVER (ORDER BY number) FROM edges
        ), halves(lowest, highest, low, size) AS (
            SELECT lowest, highest, lowest, highest - lowest + 2 FROM stretches
            UNION ALL
            SELECT lowest, highest, low + CASE WHEN COALESCE((
                SELECT {is_reached} FROM runs_run WHERE id BETWEEN low + size / 2 - 1 AND highest ORDER BY id LIMIT 1
            ), TRUE) THEN 0 ELSE size / 2 END, size - size / 2
            FROM halves WHERE size > 1
        )
        SELECT {bounds} FROM halves WHERE size <= 1
    """  # noqa: S608  # see Text
    found = fetch_rows(Text(sql, parameters))
    return [(1, LARGEST_NUMBER)] if len(found) > MOST_BREAKS + 1 else found
