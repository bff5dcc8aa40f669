"""Reading the attempts of a run without their outputs, and the outputs of those that are shown open.

An output may take megabytes, and most attempts of a long run are one line each: what they brought stays in the
database until somebody opens them. One attempt may have thousands of issues: of a run with many, all but what tells
them apart stays there too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, Func, IntegerField, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast, Coalesce
from django.db.models.sql.compiler import SQLCompiler

from flows.models import Flow, FlowVersion
from runs import models
from runs.pages.cut_texts import LONGEST_CONTEXT, LONGEST_TEXT, MOST_SUGGESTIONS
from runs.pages.issue_links import anchor_attempt
from runs.prepared_select import PreparedSelect, RowParts, build_row, list_columns

_MOST_SHOWN = MOST_SUGGESTIONS * LONGEST_TEXT + 2 * LONGEST_CONTEXT
"""Characters that a page shows of what an issue says beside its description."""
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
    return [_build_attempt(values) for values in _ATTEMPTS.fetch([run_id])]


def list_issues(
    run_id: int, *, steps: Collection[int] | None = None, is_brief: bool = False
) -> dict[int, list[models.Issue]]:
    """The issues of a run in order, by the keys of their attempts; with ``steps`` those of these steps alone.

    Each has ``more_bytes``, the size of what it says beside its description. ``is_brief`` leaves that itself out:
    ``complete_issues`` reads it of those that are shown.
    """
    found: dict[int, list[models.Issue]] = {}
    columns = _BRIEF if is_brief else _WHOLE
    for *values, size in _fetch_issues(run_id, steps, is_brief):
        issue = models.Issue.from_db("default", columns, values)
        issue.more_bytes = size  # type: ignore[attr-defined]  # annotated
        found.setdefault(issue.attempt_id, []).append(issue)
    return found


def weigh_texts(issue: models.Issue) -> int:
    """How much a page shows at most of what an issue of ``list_issues`` says."""
    more: int = issue.more_bytes  # type: ignore[attr-defined]  # annotated
    return min(len(issue.description), LONGEST_TEXT) + min(more, _MOST_SHOWN)


def complete_issues(issues: Iterable[models.Issue]) -> None:
    """Read what ``is_brief`` left out of these issues. No query if nothing was left out of them."""
    brief = {issue.pk: issue for issue in issues if "context" not in issue.__dict__}
    for key, *values in _fetch_some(_LEFT_OUT, list(brief), at_once=_MOST_COMPLETED):
        for name, value in zip(_LARGE_OF_ISSUE, values, strict=True):
            setattr(brief[key], name, value)


def _fetch_some(select: PreparedSelect, keys: Sequence[int], *, at_once: int = 0) -> Iterator[tuple[Any, ...]]:
    """The rows that ``select`` gives for these keys, for at most so many of them at a time."""
    at_once = at_once or _MOST_OUTPUTS
    for begin in range(0, len(keys), at_once):
        yield from select.fetch(keys[begin : begin + at_once])


def _fetch_issues(run_id: int, steps: Collection[int] | None, is_brief: bool) -> list[tuple[Any, ...]]:
    if steps is None or len(steps) > _MOST_STEPS:
        return (_BRIEF_ISSUES if is_brief else _ISSUES).fetch([run_id])
    if not steps:
        return []
    return (_BRIEF_ISSUES_OF_STEPS if is_brief else _ISSUES_OF_STEPS).fetch([run_id, *steps])


def find_run(run_id: int) -> models.Run:
    """A run with flow, version and who started it. Raises ``Run.DoesNotExist``.

    Its ``has_original`` says whether the run that it repeats is still there.
    """
    for values in _RUNS.fetch([run_id]):
        run, flow, version, user, (has_original,) = _RUN_PARTS.split(values)
        row = build_row(models.Run, run)
        row.has_original = has_original  # type: ignore[attr-defined]  # as if it were annotated
        row.flow = build_row(Flow, flow)
        row.version = build_row(FlowVersion, version)
        row.started_by = build_row(User, user) if row.started_by_id is not None else None
        return row
    raise models.Run.DoesNotExist


def _build_attempt(values: Sequence[Any]) -> models.Attempt:
    attempt, step, usage, sizes = _ATTEMPT_PARTS.split(values)
    row = models.Attempt.from_db("default", _ATTEMPT, attempt)
    row.step = build_row(models.Step, step)
    if usage[0] is not None:
        row.usage = build_row(models.TokenUsage, usage)
    else:
        # Known to be missing: nobody asks again.
        models.Attempt._meta.get_field("usage").set_cached_value(row, None)
    for name, value in zip(_SIZES, sizes, strict=True):
        setattr(row, name, value)
    return row


def _select_attempts(run_ids: Sequence[int]) -> QuerySet[Any, Any]:
    return (
        models.Attempt.objects.filter(step__run_id=run_ids[0])
        .annotate(
            stored_bytes=Coalesce(StoredBytes("output"), StoredBytes("raw_output"), 0),
            has_output=Q(output__isnull=False),
            has_raw_output=Q(raw_output__isnull=False),
            has_request=Q(sent__isnull=False),
        )
        .order_by("step__index", "number")
        .values_list(*_ATTEMPT_PARTS.columns)
    )


_LARGE = ("input", "output", "raw_output")
_ATTEMPT = tuple(name for name in list_columns(models.Attempt) if name not in _LARGE)
_SIZES = ("stored_bytes", "has_output", "has_raw_output", "has_request")
_ATTEMPT_PARTS = RowParts(_ATTEMPT, list_columns(models.Step, "step"), list_columns(models.TokenUsage, "usage"), _SIZES)
_ATTEMPTS = PreparedSelect(_select_attempts, most=1)
_LARGE_OF_ISSUE = ("context", "suggestions", "added_fields")
_WHOLE = list_columns(models.Issue)
_BRIEF = tuple(name for name in _WHOLE if name not in _LARGE_OF_ISSUE)
_MOST_STEPS = 8
"""Steps whose issues are read alone; whoever asks for those of more reads all."""
_MOST_COMPLETED = 200
_MOST_OUTPUTS = 64


def _prepare_issues(columns: tuple[str, ...], *, of_steps: bool = False) -> PreparedSelect:
    def select(values: Sequence[int]) -> QuerySet[Any, Any]:
        run_id, *steps = values
        issues = models.Issue.objects.filter(attempt__step__run_id=run_id)
        if of_steps:
            issues = issues.filter(attempt__step__index__in=steps)
        # PostgreSQL tells the length of a text, and not that of JSON.
        suggestions = Cast("suggestions", TextField())
        sized = issues.annotate(
            more_bytes=StoredBytes("context") + StoredBytes("added_fields") + StoredBytes(suggestions)
        )
        return sized.order_by("attempt_id", "position").values_list(*columns, "more_bytes")

    return PreparedSelect(select, most=1 + _MOST_STEPS if of_steps else 1)


_ISSUES, _ISSUES_OF_STEPS = _prepare_issues(_WHOLE), _prepare_issues(_WHOLE, of_steps=True)
_BRIEF_ISSUES, _BRIEF_ISSUES_OF_STEPS = _prepare_issues(_BRIEF), _prepare_issues(_BRIEF, of_steps=True)
_LEFT_OUT = PreparedSelect(
    lambda keys: models.Issue.objects.filter(pk__in=keys).order_by().values_list("pk", *_LARGE_OF_ISSUE),
    most=_MOST_COMPLETED,
)


def _prepare_outputs(column: str) -> PreparedSelect:
    return PreparedSelect(
        lambda keys: models.Attempt.objects.filter(pk__in=keys).order_by().values_list("pk", column),
        most=_MOST_OUTPUTS,
    )


_OUTPUTS, _RAW_OUTPUTS = _prepare_outputs("output"), _prepare_outputs("raw_output")
_RUN_PARTS = RowParts(
    list_columns(models.Run),
    list_columns(Flow, "flow"),
    list_columns(FlowVersion, "version"),
    list_columns(User, "started_by"),
    ("has_original",),
)


def _select_runs(run_ids: Sequence[int]) -> QuerySet[Any, Any]:
    originals = models.Run.objects.filter(pk=OuterRef("again_of"))
    runs = models.Run.objects.filter(pk=run_ids[0]).annotate(has_original=Exists(originals))
    return runs.values_list(*_RUN_PARTS.columns)


_RUNS = PreparedSelect(_select_runs, most=1)


def read_outputs(rows: Collection[models.Attempt]) -> None:
    """Give rows of ``list_attempt_rows`` their ``output``, and ``unusable_output``, what came back instead of one.

    One query, and another one if some of them have no output.
    """
    with_output = {row.pk: row for row in rows if row.has_output}  # type: ignore[attr-defined]  # annotated
    others = {row.pk: row for row in rows if row.pk not in with_output}
    for key, output in _fetch_some(_OUTPUTS, list(with_output)):
        with_output[key].output = output
    for row in others.values():
        row.output = None
    unusable = [key for key, row in others.items() if row.has_raw_output]  # type: ignore[attr-defined]  # annotated
    for key, came_back in _fetch_some(_RAW_OUTPUTS, unusable):
        others[key].unusable_output = came_back  # type: ignore[attr-defined]  # as if it were annotated


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
