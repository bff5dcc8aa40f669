"""What each filter means: where its runs are read off an index in order, and how one run is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from runs.models import FacetKind
from runs.run_filters.filters import RunFilters
from runs.run_filters.streams import AnyStream, Stream, Text


@dataclass(frozen=True, slots=True)
class Condition:
    """What one filter asks for."""

    check: Text
    """What is true of a row of ``runs_run`` that meets it."""
    streams: tuple[AnyStream, ...] = ()
    """Together they hold the runs that meet it; none if no index leads to them."""


def list_conditions(filters: RunFilters) -> Iterator[Condition]:
    """The conditions of all filters but the search, likely rare ones first."""
    yield from _list_facets((FacetKind.LABEL, filters.label), (FacetKind.CODE, filters.code))
    yield from _list_facets((FacetKind.AUDIT, filters.audit))
    if filters.version is not None:
        versions = "SELECT v.id FROM flows_flowversion v JOIN flows_flow f ON f.id = v.flow_id"
        number = Text(f"{versions} WHERE f.name = %s AND v.number = %s", (filters.flow, filters.version))
        yield _equals("version_id", number)
    elif filters.flow:
        yield _equals("flow_id", Text("SELECT id FROM flows_flow WHERE name = %s", (filters.flow,)))
    if filters.started_by:
        yield _equals("started_by_id", Text("SELECT id FROM auth_user WHERE username = %s", (filters.started_by,)))
    if filters.statuses:
        streams = tuple(_with_status(status) for status in filters.statuses)
        marks = ", ".join("%s" for _ in filters.statuses)
        yield Condition(Text(f"status IN ({marks})", filters.statuses), streams)
    yield from _list_facets((FacetKind.SEVERITY, filters.severity), (FacetKind.MODEL, filters.model))
    yield from _list_amounts(filters)


def _list_facets(*wanted: tuple[FacetKind, str]) -> Iterator[Condition]:
    for kind, value in wanted:
        if value:
            yield _has_facet(kind, value)


def _list_amounts(filters: RunFilters) -> Iterator[Condition]:
    """The conditions of what has a size: cost, tokens, time."""
    if filters.cost is not None:
        yield Condition(Text("cost > %s", (connection.ops.adapt_decimalfield_value(filters.cost, 16, 8),)))
    if filters.tokens is not None:
        yield Condition(Text("total_tokens > %s", (filters.tokens,)))
    if filters.since is not None:
        yield Condition(build_created_since(filters.since))
    if filters.until is not None:
        yield Condition(build_created_until(filters.until))


def build_created_since(day: date) -> Text:
    """What is true of runs that were created on ``day`` or later, in the active time zone."""
    return Text("created_at >= %s", (_write_midnight(day),))


def build_created_until(day: date) -> Text:
    """What is true of runs that were created on ``day`` or earlier, in the active time zone."""
    return Text("created_at < %s", (_write_midnight(day + timedelta(days=1)),))


def _write_midnight(day: date) -> Any:
    midnight = datetime.combine(day, time.min, timezone.get_current_timezone())
    return connection.ops.adapt_datetimefield_value(midnight)


def _equals(column: str, value: Text) -> Condition:
    own = Text(f"({value.sql})", value.parameters)
    return Condition(Text(f"{column} = {own.sql}", own.parameters), (Stream("runs_run", "id", column, own),))


def _with_status(status: str) -> Stream:
    return Stream("runs_run", "id", "status", Text("%s", (status,)))


def _has_facet(kind: FacetKind, value: str) -> Condition:
    # EXISTS would let PostgreSQL read all runs that have the value; a value is looked up run by run.
    own = "SELECT run_id FROM runs_runfacet WHERE kind = %s AND value = %s AND run_id = runs_run.id"
    check = Text(f"({own}) IS NOT NULL", (kind.value, value))
    has_value = Text("value = %s", (value,))
    stream = Stream("runs_runfacet", "run_id", "kind", Text("%s", (kind.value,)), has_value, is_reversed=False)
    return Condition(check, (stream,))
