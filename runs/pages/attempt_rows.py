"""Reading the attempts of a run without their outputs, and the outputs of those that are shown open.

An output may take megabytes, and most attempts of a long run are one line each: what they brought stays in the
database until somebody opens them. One attempt may have thousands of issues: of a run with many, all but what tells
them apart stays there too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, Func, IntegerField, OuterRef, Q, TextField
from django.db.models.functions import Cast, Coalesce
from django.db.models.sql.compiler import SQLCompiler

from runs import models
from runs.history.issue_links import anchor_attempt
from runs.history.texts import LONGEST_CONTEXT, LONGEST_TEXT, MOST_SUGGESTIONS

_MOST_SHOWN = MOST_SUGGESTIONS * LONGEST_TEXT + 2 * LONGEST_CONTEXT
"""Characters that a page shows of what an issue says beside its description."""
_LARGE_OF_ISSUE = ("context", "suggestions", "added_fields")
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
    attempts = models.Attempt.objects.filter(step__run_id=run_id).annotate(
        stored_bytes=Coalesce(StoredBytes("output"), StoredBytes("raw_output"), 0),
        has_output=Q(output__isnull=False),
        has_raw_output=Q(raw_output__isnull=False),
        has_request=Q(sent__isnull=False),
    )
    large = ("input", "output", "raw_output")
    return list(attempts.select_related("step", "usage").defer(*large).order_by("step__index", "number"))


def list_issues(
    run_id: int, *, steps: Collection[int] | None = None, is_brief: bool = False
) -> dict[int, list[models.Issue]]:
    """The issues of a run in order, by the keys of their attempts; with ``steps`` those of these steps alone.

    Each has ``more_bytes``, the size of what it says beside its description. ``is_brief`` leaves that itself out:
    ``complete_issues`` reads it of those that are shown.
    """
    issues = models.Issue.objects.filter(attempt__step__run_id=run_id)
    if steps is not None:
        issues = issues.filter(attempt__step__index__in=steps)
    if is_brief:
        issues = issues.defer(*_LARGE_OF_ISSUE)
    # PostgreSQL tells the length of a text, and not that of JSON.
    suggestions = StoredBytes(Cast("suggestions", TextField()))
    found: dict[int, list[models.Issue]] = {}
    sized = issues.annotate(more_bytes=StoredBytes("context") + StoredBytes("added_fields") + suggestions)
    for issue in sized.order_by("attempt_id", "position"):
        found.setdefault(issue.attempt_id, []).append(issue)
    return found


def weigh_texts(issue: models.Issue) -> int:
    """How much a page shows at most of what an issue of ``list_issues`` says."""
    more: int = issue.more_bytes  # type: ignore[attr-defined]  # annotated
    return min(len(issue.description), LONGEST_TEXT) + min(more, _MOST_SHOWN)


def complete_issues(issues: Iterable[models.Issue]) -> None:
    """Read what ``is_brief`` left out of these issues. No query if nothing was left out of them."""
    brief = {issue.pk: issue for issue in issues if "context" in issue.get_deferred_fields()}
    for whole in models.Issue.objects.only(*_LARGE_OF_ISSUE).in_bulk(list(brief)).values():
        for name in _LARGE_OF_ISSUE:
            setattr(brief[whole.pk], name, getattr(whole, name))


def find_run(run_id: int) -> models.Run:
    """A run with flow, version and who started it. Raises ``Run.DoesNotExist``.

    Its ``has_original`` says whether the run that it repeats is still there.
    """
    originals = models.Run.objects.filter(pk=OuterRef("again_of"))
    runs = models.Run.objects.select_related("flow", "version", "started_by")
    return runs.annotate(has_original=Exists(originals)).get(pk=run_id)


def read_outputs(rows: Collection[models.Attempt]) -> None:
    """Give rows of ``list_attempt_rows`` their ``output``, and ``unusable_output``, what came back instead of one.

    One query, and another one if some of them have no output.
    """
    with_output = {row.pk: row for row in rows if row.has_output}  # type: ignore[attr-defined]  # annotated
    others = {row.pk: row for row in rows if row.pk not in with_output}
    for key, output in _fetch_column("output", with_output):
        with_output[key].output = output
    for row in others.values():
        row.output = None
    unusable = [key for key, row in others.items() if row.has_raw_output]  # type: ignore[attr-defined]  # annotated
    for key, came_back in _fetch_column("raw_output", unusable):
        others[key].unusable_output = came_back  # type: ignore[attr-defined]  # as if it were annotated


def _fetch_column(name: str, keys: Collection[int]) -> Iterable[tuple[int, Any]]:
    return models.Attempt.objects.filter(pk__in=keys).order_by().values_list("pk", name) if keys else ()


def name_attempt(row: models.Attempt) -> str:
    """The id of an attempt on the page of its run: ``s2a1``."""
    return anchor_attempt(row.step.index, row.number)


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
