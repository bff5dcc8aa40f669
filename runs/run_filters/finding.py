"""Finding runs, at the same cost however many there are.

Each filter reads its runs off an index in the order of run numbers (see ``streams``). With several filters the rarest
is read, a bounded number of runs ahead, and each of these is checked against the others. Where that is not enough for a
page, the finding says how far it looked, and whoever wants more goes on from there: no query reads without bound.

Days become bounds of run numbers (see ``days``); each run is checked against the days too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from django.db import connection

from runs.models import Run
from runs.run_filters.conditions import Condition, list_conditions
from runs.run_filters.days import list_spans
from runs.run_filters.filters import RunFilters
from runs.run_filters.reading import read_run_number
from runs.run_filters.streams import AnyStream, RunStream, Span, Text, count_ahead, fetch_rows, read_merged
from runs.search import look_for_runs, read_query

FIRST_LOOK = 300
"""Runs that are checked first: as a rule a page is among them."""
LOOK_THROUGH = 5_000
"""Runs that are checked at most."""
PROBED = 500
"""Runs of each filter that are counted to find the rarest one."""


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Numbers of runs that match, the newest first, and how to go on."""

    ids: tuple[int, ...]
    looked_to: int | None
    """The last run number that was looked at where looking stopped early: the lowest, or with ``after`` the highest.

    None if ``ids`` is all there is, or as many as were asked for. Else there may be more behind it: look further with
    it as ``before`` or ``after``.
    """


class _Source(Protocol):
    def __call__(self, span: Span, limit: int) -> tuple[Sequence[int], int | None]:
        """The numbers of the first ``limit`` runs in ``span``, and the last number looked at if there may be more."""


def find_runs(
    filters: RunFilters, *, before: int | None = None, after: int | None = None, limit: int = 50
) -> FoundRuns:
    """Up to ``limit`` runs that match: the newest below ``before``, or the oldest above ``after``.

    Raises ``ValueError`` for a search that ``read_filters`` would not have let through.
    """
    span = _find_span(before, after)
    spans = () if span.is_empty else list_spans(filters, span)
    if not spans:
        return FoundRuns((), None)
    conditions = list(list_conditions(filters))
    indexed = [condition for condition in conditions if condition.streams]
    if filters.search:
        source, rest = _build_search(filters.search), conditions
    else:
        source, rest = _read_by(indexed[0] if indexed else None, conditions)
    found: list[int] = []
    looked_to: int | None = None
    for turn, look in enumerate(_plan_looks(limit, is_checked=bool(rest))):
        if turn == 1 and len(indexed) > 1 and not filters.search:
            # It pays to find out which is the rarest only where any of them was not enough.
            source, rest = _read_by(indexed[_find_rarest(indexed, spans[0])], conditions)
        candidates, looked_to = _read(source, spans, look)
        found += _check(candidates, rest, span, limit - len(found))
        is_enough = len(found) >= limit
        if not is_enough and looked_to is not None:
            spans = [left for one in spans if not (left := one.behind(looked_to)).is_empty]
        if is_enough or looked_to is None or not spans:
            looked_to = None
            break
    return FoundRuns(tuple(sorted(found, reverse=True)), looked_to)


def _plan_looks(limit: int, *, is_checked: bool) -> tuple[int, ...]:
    """How many runs to read, one look after the other."""
    if not is_checked:
        return (limit,)
    first = max(FIRST_LOOK, limit)
    second = min(2 * FIRST_LOOK, LOOK_THROUGH - first)
    last = LOOK_THROUGH - first - second
    return tuple(look for look in (first, second, last) if look > 0)


def _find_span(before: int | None, after: int | None) -> Span:
    """The numbers of a page, whatever the filters."""
    if after is not None:
        return Span(is_ascending=True).cut(lowest=after + 1)
    return Span() if before is None else Span().cut(highest=before - 1)


def _read(source: _Source, spans: Sequence[Span], limit: int) -> tuple[Sequence[int], int | None]:
    """What ``source`` gives of several spans, one after the other."""
    numbers: list[int] = []
    for span in spans:
        found, looked_to = source(span, limit - len(numbers))
        numbers += found
        if looked_to is not None:
            return numbers, looked_to
    return numbers, None


def _read_by(condition: Condition | None, conditions: Sequence[Condition]) -> tuple[_Source, list[Condition]]:
    """Where the runs of a condition are read, all runs without one, and what is left to check of all conditions."""
    if condition is None:
        return _Reader((RunStream(),)), list(conditions)
    return _Reader(condition.streams), [other for other in conditions if other is not condition]


@dataclass(frozen=True, slots=True)
class _Reader:
    streams: tuple[AnyStream, ...]

    def __call__(self, span: Span, limit: int) -> tuple[Sequence[int], int | None]:
        numbers = read_merged(self.streams, span, limit)
        return numbers, numbers[-1] if len(numbers) == limit else None


def _find_rarest(conditions: Sequence[Condition], span: Span) -> int:
    """The position of the condition with the fewest runs.

    Of those with very many, it is the one whose next ones lie the farthest apart.
    """
    counts = count_ahead([condition.streams for condition in conditions], span, PROBED)
    direction = -1 if span.is_ascending else 1
    ranked = [(count, direction * last, position) for position, (count, last) in enumerate(counts)]
    return min(ranked)[-1]


def _build_search(text: str) -> _Source:
    number = read_run_number(text)
    if number is not None and Run.objects.filter(pk=number).exists():
        return lambda span, _: ([number] if span.holds(number) else [], None)
    query = read_query(text)

    def search(span: Span, limit: int) -> tuple[Sequence[int], int | None]:
        if span.is_ascending:
            hits = look_for_runs(query, after=span.lowest - 1, limit=limit)
            numbers = hits.ids[::-1]
        else:
            hits = look_for_runs(query, before=span.highest + 1, limit=limit)
            numbers = hits.ids
        looked_to = hits.looked_to or (numbers[-1] if len(numbers) == limit else None)
        has_more = looked_to is not None and span.holds(looked_to)
        return [number for number in numbers if span.holds(number)], looked_to if has_more else None

    return search


def _check(numbers: Sequence[int], conditions: Sequence[Condition], span: Span, limit: int) -> list[int]:
    """The first ``limit`` of ``numbers`` whose runs meet all ``conditions``."""
    if not conditions or not numbers:
        return list(numbers[:limit])
    checks = " AND ".join(condition.check.sql for condition in conditions)
    among = ",".join(map(str, numbers))
    # PostgreSQL reads one text of a thousand numbers in half the time that it takes for as many constants.
    is_among = f"= ANY('{{{among}}}'::bigint[])" if connection.vendor == "postgresql" else f"IN ({among})"
    # Neither order nor limit: they would tempt a planner to walk along all runs instead of looking these up.
    sql = f"SELECT id FROM runs_run WHERE id {is_among} AND {checks}"  # noqa: S608  # see Text
    parameters = tuple(value for condition in conditions for value in condition.check.parameters)
    matching = [number for (number,) in fetch_rows(Text(sql, parameters))]
    return sorted(matching, reverse=not span.is_ascending)[:limit]
