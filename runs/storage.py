"""What takes the room: read off the database's own figures, and off samples of runs, so that it takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Avg, Count, Max, Min

from flows.models import Flow
from runs.models import Run
from runs.retention.policy import Part, Policy, build_tasks, effective_policy

SAMPLE = 200
"""Runs of each flow that are measured."""

DETAILED_UP_TO = 1024**3
"""Bytes of an SQLite file whose tables are measured without being asked to: all of the file is read for that."""

_PARTS = {"inputs": ("input",), "outputs": ("output", "raw_output")}
_TABLE_COLUMNS = ("name", "rows", "data", "indexes")
_ISSUE_PARTS = ("description", "context", "suggestions", "added_fields")


def measure_storage(*, now: datetime, policy: Policy | None = None, is_detailed: bool = False) -> dict[str, Any]:
    """Measure in bytes the ``total`` and what is ``free`` of it, ``tables`` and ``flows``, the largest first.

    With ``policy`` what would be due if all flows had that one. ``is_detailed`` measures the tables of a large SQLite
    file too, which takes as long as to read all of it; else they are None.
    """
    total, free, found = (
        _measure_postgresql() if connection.vendor == "postgresql" else _measure_sqlite(is_detailed=is_detailed)
    )
    tables = found and [dict(zip(_TABLE_COLUMNS, row, strict=True)) for row in found]
    if tables:
        tables.sort(key=lambda table: table["data"] + table["indexes"], reverse=True)
    flows = [_measure_flow(flow, policy or effective_policy(flow), now) for flow in Flow.objects.order_by("name")]
    flows.sort(key=lambda flow: flow["runs"] * flow["run_bytes"], reverse=True)
    return {"total": total, "free": free, "tables": tables, "flows": flows}


def _measure_flow(flow: Flow, policy: Policy, now: datetime) -> dict[str, Any]:
    """What the runs of a flow take, from a sample: of an average run that has its outputs, without indexes."""
    found = Run.objects.filter(flow=flow).aggregate(runs=Count("pk"), first=Min("pk"), last=Max("pk"))
    sample = _choose_sample(flow, found["first"], found["last"]) if found["runs"] else []
    attempts = Run.objects.filter(pk__in=sample).aggregate(average=Avg("attempt_count"))["average"] or 0.0
    sizes = _measure_runs(sample)
    tasks = build_tasks(flow, policy, now)
    due = dict.fromkeys(Part, 0) | {task.part: task.count()[0] for task in tasks}
    # Of a run without outputs little is left to free.
    with_outputs = sum(task.due()[-1].count() for task in tasks)
    run_bytes = sum(sizes.values())
    return {
        "flow": flow.name,
        "runs": found["runs"],
        "attempts": round(float(attempts), 1),
        "run_bytes": run_bytes,
        **sizes,
        "policy": str(policy),
        "runs_due": due[Part.RUNS],
        "outputs_due": due[Part.OUTPUTS],
        "freed": with_outputs * run_bytes,
    }


def _choose_sample(flow: Flow, first: int, last: int) -> list[int]:
    """Runs from all over the flow's history, those that still have their outputs."""
    step = max(1, (last - first + 1) // SAMPLE)
    chosen: set[int] = set()
    rows = Run.objects.filter(flow=flow, outputs_removed_at=None).order_by("pk")
    for number in range(first, last + 1, step):
        found = rows.filter(pk__gte=number).values_list("pk", flat=True).first()
        if found is None:
            break
        chosen.add(found)
    return sorted(chosen)


def _measure_runs(run_ids: list[int]) -> dict[str, int]:
    """Bytes of an average run of these by part."""
    if not run_ids:
        return dict.fromkeys([*_PARTS, "requests", "issues"], 0)
    is_postgresql = connection.vendor == "postgresql"
    among = "= ANY(%s)" if is_postgresql else "IN (SELECT value FROM json_each(%s))"
    attempts = f"FROM runs_attempt a JOIN runs_step s ON s.id = a.step_id WHERE s.run_id {among}"
    # Made of our own names alone.
    statements = [
        f"SELECT {', '.join(map(_sum_sizes, _PARTS.values()))} {attempts}",
        f"SELECT {_sum_sizes(('body',))} FROM runs_attemptrequest WHERE attempt_id IN (SELECT a.id {attempts})",  # noqa: S608
        f"SELECT {_sum_sizes(_ISSUE_PARTS)} FROM runs_issue WHERE attempt_id IN (SELECT a.id {attempts})",  # noqa: S608
        f"SELECT {_sum_sizes(('input',))} FROM runs_run WHERE id {among}",  # noqa: S608
    ]
    values: list[int] = []
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement, [run_ids if is_postgresql else str(run_ids)])
            values += [int(value or 0) for value in cursor.fetchone()]
    inputs, outputs, requests, issues, own = (value // len(run_ids) for value in values)
    return {"inputs": inputs + own, "outputs": outputs, "requests": requests, "issues": issues}


def _sum_sizes(columns: Sequence[str]) -> str:
    """SQL for the bytes that these columns of all rows take."""
    size = "pg_column_size({})" if connection.vendor == "postgresql" else "LENGTH(CAST({} AS BLOB))"
    return f"SUM({' + '.join(f'COALESCE({size.format(column)}, 0)' for column in columns)})"


def _measure_postgresql() -> tuple[int, int, list[Any] | None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (total,) = cursor.fetchone()
        cursor.execute(
            "SELECT relname, GREATEST(reltuples, 0)::bigint, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        )
        return total, 0, cursor.fetchall()


def _measure_sqlite(*, is_detailed: bool) -> tuple[int, int, list[Any] | None]:
    with connection.cursor() as cursor:
        page, pages, free = (_ask_pragma(cursor, name) for name in ("page_size", "page_count", "freelist_count"))
        total = page * pages
        if not is_detailed and total > DETAILED_UP_TO:
            return total, page * free, None
        cursor.execute("SELECT name, tbl_name, type FROM sqlite_master WHERE type IN ('table', 'index')")
        owners = {name: (table, kind) for name, table, kind in cursor.fetchall()}
        cursor.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name")
        sizes: dict[str, list[int]] = {}
        for name, size in cursor.fetchall():
            table, kind = owners.get(name, (name, "table"))
            sizes.setdefault(table, [0, 0])[kind == "index"] += size
    return total, page * free, [(name, None, *both) for name, both in sizes.items()]


def _ask_pragma(cursor: Any, name: str) -> int:
    cursor.execute(f"PRAGMA {name}")
    return int(cursor.fetchone()[0])
