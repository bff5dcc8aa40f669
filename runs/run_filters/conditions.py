"""What each filter means: which index its runs are read from in the order of lists, and how one run is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from runs.models import FacetKind, RunStatus
from runs.run_filters.filters import RunFilters

_UNDER_WAY = {RunStatus.QUEUED, RunStatus.RUNNING}


@dataclass(frozen=True, slots=True)
class Text:
    """SQL that is ours, with ``%s`` for each of its ``parameters``: all that came from a user is among those."""

    sql: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of ``table`` where ``where`` holds and ``key`` has ``value``: one row for each run that has it.

    An index begins with ``key`` and the columns of ``where`` and ends with ``created_at`` and ``column``, the run's id.
    Without ``key`` they are all runs.
    """

    table: str = "runs_run"
    column: str = "id"
    key: str = ""
    value: Text = Text("")
    where: Text = Text("1 = 1")


@dataclass(frozen=True, slots=True)
class Condition:
    """What one filter asks for."""

    check: Text
    """What is true of a row of ``runs_run`` that meets it."""
    sources: tuple[Source, ...] = ()
    """Together they hold the runs that meet it, each in one of them; none if no index leads to them."""


def list_conditions(filters: RunFilters) -> Iterator[Condition]:
    """The conditions of all filters but search and days, those first that few runs meet as a rule."""
    is_under_way = _UNDER_WAY.issuperset(filters.statuses)
    if filters.statuses and is_under_way:
        yield _build_status_condition(filters)
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
    if filters.statuses and not is_under_way:
        yield _build_status_condition(filters)
    yield from _list_facets((FacetKind.SEVERITY, filters.severity), (FacetKind.MODEL, filters.model))
    if filters.cost is not None:
        yield Condition(Text("cost > %s", (connection.ops.adapt_decimalfield_value(filters.cost, 16, 8),)))
    if filters.tokens is not None:
        yield Condition(Text("total_tokens > %s", (filters.tokens,)))


def list_day_bounds(filters: RunFilters) -> list[Text]:
    """What is true of ``created_at`` on the days that are asked for, in the active time zone."""
    bounds = []
    if filters.since is not None:
        bounds.append(Text("created_at >= %s", (_adapt_midnight(filters.since),)))
    if filters.until is not None:
        bounds.append(Text("created_at < %s", (_adapt_midnight(filters.until + timedelta(days=1)),)))
    return bounds


def _adapt_midnight(day: date) -> Any:
    midnight = datetime.combine(day, time.min, timezone.get_current_timezone())
    return connection.ops.adapt_datetimefield_value(midnight)


def _list_facets(*wanted: tuple[FacetKind, str]) -> Iterator[Condition]:
    for kind, value in wanted:
        if value:
            yield _has_facet(kind, value)


def _equals(column: str, value: Text) -> Condition:
    own = Text(f"({value.sql})", value.parameters)
    return Condition(Text(f"{column} = {own.sql}", own.parameters), (Source(key=column, value=own),))


def _build_status_condition(filters: RunFilters) -> Condition:
    sources = tuple(Source(key="status", value=Text("%s", (status,))) for status in filters.statuses)
    marks = ", ".join("%s" for _ in filters.statuses)
    return Condition(Text(f"status IN ({marks})", filters.statuses), sources)


def _has_facet(kind: FacetKind, value: str) -> Condition:
    # EXISTS would let PostgreSQL read all runs that have the value; a value is looked up run by run.
    own = (
        "SELECT run_id FROM runs_runfacet WHERE kind = %s AND value = %s "
        "AND created_at = runs_run.created_at AND run_id = runs_run.id"
    )
    check = Text(f"({own}) IS NOT NULL", (kind.value, value))
    has_value = Text("value = %s", (value,))
    return Condition(check, (Source("runs_runfacet", "run_id", "kind", Text("%s", (kind.value,)), has_value),))
