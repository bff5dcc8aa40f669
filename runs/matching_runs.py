"""Reading the runs that match filters, in the order of lists and within a bounded window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.models import Max, OuterRef, Q, Subquery
from django.db.models.expressions import Combinable

from runs.filter_fields import parse_run_number
from runs.filters import RunFilters
from runs.models import Run
from runs.paging import Found, Position, Select, Stream, build_flag, scan
from runs.search import SearchQuery, fetch_matching_among, fetch_matching_ids, parse_search

MAX_HITS = 5_000
"""Runs that hold what is searched for and are looked up all at once; where there are more, a window has many."""


def fetch_matching_runs(
    filters: RunFilters,
    *,
    before: int | Position | None = None,
    after: int | Position | None = None,
    newest: int | None = None,
    limit: int = 50,
) -> Found:
    """Up to ``limit`` runs that match: the newest behind ``before``, or the oldest ahead of ``after``.

    Both are positions, or numbers of runs. Runs with a higher number than ``newest`` are left out. At most a window of
    runs is checked; where it ends before enough is found, the result says so.
    """
    text, index = filters.values.get("q", ""), filters.choose_index()
    number = parse_run_number(text)
    if number is not None and Run.objects.filter(pk=number).exists():
        text, index, streams = "", "", [Stream(Run.objects.filter(pk=number))]
    else:
        streams = filters.build_streams()
    select = None
    if text:
        streams, index, select = narrow_to_search(parse_search(text), streams, index)
    return _scan(filters, streams, index, before=before, after=after, newest=newest, limit=limit, select=select)


def narrow_to_search(query: SearchQuery, streams: list[Stream], index: str) -> tuple[list[Stream], str, Select | None]:
    """The streams to scan for a search in place of ``streams`` with their ``index``, and what to select of their runs.

    Where few enough runs match, they are the stream; otherwise the runs of the streams are matched as they are scanned.
    """
    hits = fetch_matching_ids(query, limit=MAX_HITS)
    select = partial(fetch_matching_among, query)
    if hits is None:
        return streams, index, select
    ids, is_exact = hits
    return [Stream(Run.objects.filter(pk__in=ids))], "", None if is_exact else select


def _scan(filters: RunFilters, streams: Sequence[Stream], index: str, *, newest: int | None, **options: Any) -> Found:
    """The runs of ``streams``, which are those of the filter ``index``, that match the others too."""
    covered = {"q", "from", "to", *(() if index == "label" and len(filters.values["label"]) > 1 else (index,))}
    if index == "version":
        covered.add("flow")
    bounds = [name for name in ("from", "to") if name in filters.values]
    bounded = []
    for one in streams:
        rows = one.rows if newest is None else one.rows.filter(**{f"{one.key}__lte": newest})
        for name in bounds:
            rows = filters.filters[name].filter(rows, filters.values[name])
        bounded.append(replace(one, rows=rows))
    condition = filters.build_condition(*covered)
    matches = build_matches(condition, streams[0]) if condition else None
    return scan(bounded, matches=matches, table=Run, **options)


def build_matches(condition: Q, stream: Stream) -> Combinable:
    """What ``scan`` takes as ``matches``: that the run of a row of ``stream``, itself or by its key, is like that."""
    if stream.key == "pk":
        return build_flag(condition)
    return Subquery(Run.objects.filter(condition, pk=OuterRef(stream.key)).order_by().values("pk")[:1])


def fetch_newest_run_number() -> int:
    """The highest run number that there is, 0 if there are no runs."""
    return Run.objects.aggregate(newest=Max("pk"))["newest"] or 0
