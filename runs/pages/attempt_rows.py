"""Reading the attempts of a run without their outputs, and the outputs of those that are shown open.

An output may take megabytes, and most attempts of a long run are one line each: what they brought stays in the
database until somebody opens them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, IntegerField, Q
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler

from runs import models

_CHEAP_LENGTH = (3, 43, 0)
"""Since this version SQLite tells the length of a text without reading it."""


class StoredBytes(Func):
    """How many bytes a text column takes; null for null."""

    function = "OCTET_LENGTH"
    output_field = IntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        """The same on SQLite, whose older versions count the bytes of binary values only."""
        if connection.Database.sqlite_version_info >= _CHEAP_LENGTH:  # type: ignore[attr-defined]  # of sqlite3
            return self.as_sql(compiler, connection, **extra)
        return self.as_sql(compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **extra)


def list_attempt_rows(run_id: int) -> list[models.Attempt]:
    """The attempts of a run with step and usage, in order, without what may be large.

    Each has ``stored_bytes``, the size of what it brought, and ``has_output``, ``has_raw_output``, ``has_request``.
    """
    attempts = models.Attempt.objects.filter(step__run_id=run_id).select_related("step", "usage")
    return list(
        attempts.defer("input", "output", "raw_output", "request")
        .annotate(
            stored_bytes=Coalesce(StoredBytes("output"), StoredBytes("raw_output"), 0),
            has_output=Q(output__isnull=False),
            has_raw_output=Q(raw_output__isnull=False),
            has_request=Q(request__isnull=False),
        )
        .order_by("step__index", "number")
    )


def read_outputs(rows: Collection[models.Attempt]) -> None:
    """Give rows of ``list_attempt_rows`` their ``output``, and ``unusable_output``, what came back instead of one.

    One query, and another one if some of them have no output.
    """
    with_output = {row.pk: row for row in rows if row.has_output}  # type: ignore[attr-defined]  # annotated
    others = {row.pk: row for row in rows if row.pk not in with_output}
    attempts = models.Attempt.objects.order_by()
    for key, output in attempts.filter(pk__in=with_output).values_list("pk", "output"):
        with_output[key].output = output
    for row in others.values():
        row.output = None
    unusable = [key for key, row in others.items() if row.has_raw_output]  # type: ignore[attr-defined]  # annotated
    for key, came_back in attempts.filter(pk__in=unusable).values_list("pk", "raw_output"):
        others[key].unusable_output = came_back  # type: ignore[attr-defined]  # as if it were annotated


def name_attempt(row: models.Attempt) -> str:
    """The id of an attempt on the page of its run: ``s2a1``."""
    return f"s{row.step.index}a{row.number}"


def find_bases(rows: Sequence[models.Attempt]) -> dict[int, models.Attempt]:
    """For each attempt the one before it in its step that has an output, by the attempt's key, if there is one."""
    found = {}
    latest: dict[int, models.Attempt] = {}
    for row in rows:
        if base := latest.get(row.step_id):
            found[row.pk] = base
        if row.has_output:  # type: ignore[attr-defined]  # annotated
            latest[row.step_id] = row
    return found
