"""Reading a run for its page: its definition, its attempts without their outputs, its issues, and what became of them.

An output may take megabytes, and a page shows one: the others stay in the database, but for those that show which
issues moved with their items and which retries gave the same output again. One attempt may have thousands of issues: of
a run with many, all but what distinguishes them stays there too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, Func, IntegerField, OuterRef, Q
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler
from pydantic import ValidationError

from flows.engine.errors import SpecError
from flows.engine.json_values import resolve_pointer
from flows.engine.model_calls import resolve_spec
from flows.engine.spec import FlowSpec, ModelSettings, StepSpec
from runs import models
from runs.history.checklist import build_checklist
from runs.history.issues import Judged, StepIssues, address_attempt, anchor_attempt, list_page, name_issue, show_code
from runs.history.json_lines import Listing, Mark, list_compact, list_json
from runs.history.output_diff import compare_outputs
from runs.history.output_view import View, view_output, view_text
from runs.history.texts import MAX_CONTEXT_LENGTH, MAX_SUGGESTIONS, SHORT_TEXT, cut_text, show_invisible
from runs.models import Run
from runs.pages.badges import STATES, IssueCounts, list_counts

MAX_READ_BYTES = 150_000
"""Stored outputs of a step that are read for comparison only. Beyond that, items count as fixed and new, and outputs as
different."""

_LARGE_OF_ISSUE = ("context", "suggestions", "added_fields")
_CHEAP_LENGTH = (3, 43, 0)
"""Since this version SQLite knows the length of a text without reading it."""


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


def list_issues(run_id: int, *, is_brief: bool = False) -> dict[int, list[models.Issue]]:
    """The issues of a run in order, by the keys of their attempts.

    ``is_brief`` leaves out what may be large: ``complete_issues`` reads it of those that are shown.
    """
    issues = models.Issue.objects.filter(attempt__step__run_id=run_id)
    if is_brief:
        issues = issues.defer(*_LARGE_OF_ISSUE)
    found: dict[int, list[models.Issue]] = {}
    for issue in issues.order_by("attempt_id", "position"):
        found.setdefault(issue.attempt_id, []).append(issue)
    return found


def complete_issues(issues: Iterable[models.Issue]) -> None:
    """Read what ``is_brief`` left out of these issues. No query if nothing was left out of them."""
    brief = {issue.pk: issue for issue in issues if "context" in issue.get_deferred_fields()}
    for whole in models.Issue.objects.only(*_LARGE_OF_ISSUE).in_bulk(list(brief)).values():
        for name in _LARGE_OF_ISSUE:
            setattr(brief[whole.pk], name, getattr(whole, name))


def fetch_run(run_id: int) -> models.Run:
    """A run with flow, version and who started it. Raises ``Run.DoesNotExist``.

    Its ``has_original`` says whether the run that it repeats is still there.
    """
    originals = models.Run.objects.filter(pk=OuterRef("again_of"))
    runs = models.Run.objects.select_related("flow", "version", "started_by")
    return runs.annotate(has_original=Exists(originals)).get(pk=run_id)


def read_spec(run: models.Run) -> FlowSpec | None:
    """The definition that a run was made with, with its model settings; None if this release can't read it."""
    try:
        return resolve_spec(run.version.flow_spec, ModelSettings.model_validate(run.model_settings))
    except (SpecError, ValidationError):
        return None


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


Traced = tuple[Mapping[int, StepIssues], Mapping[int, models.Attempt]]
"""What became of issues, by the index of the step; and by the key of an attempt the first one of its step that gave
this very output, one after the other."""


def load_and_trace(
    rows: Sequence[models.Attempt],
    issues: Mapping[int, Sequence[models.Issue]],
    shown: Collection[models.Attempt],
    *,
    has_texts: bool,
) -> Traced:
    """Give the ``shown`` rows of ``list_attempt_rows`` their ``output``, and compare the attempts of each step.

    Rows without an output get ``unusable_output``, what came back instead of one. One query at most, and another one
    for such rows. Without texts, which retention has removed, issues are counted only.
    """
    steps: dict[int, list[models.Attempt]] = {}
    for row in rows:
        steps.setdefault(row.step.index, []).append(row)
    judged: dict[int, list[Judged]] = {
        index: [(row, issues.get(row.pk, ())) for row in own] for index, own in steps.items()
    }
    traced = {index: StepIssues(index, attempts, has_texts=has_texts) for index, attempts in judged.items()}
    compared: dict[int, models.Attempt] = {}
    for index, own in steps.items():
        moving = (row for row in own if row.number in traced[index].moving)
        for row in (*_choose_readable(moving), *_choose_readable(_list_alike(own))):
            compared[row.pk] = row
    outputs = load_outputs(shown, compared.values())
    by_number: dict[int, dict[int, Any]] = {}
    for row in (row for row in compared.values() if row.pk in outputs):
        by_number.setdefault(row.step.index, {})[row.number] = outputs[row.pk]
    for index, known in by_number.items():
        if traced[index].moving:
            traced[index] = StepIssues(index, judged[index], known)
    return traced, _find_same(steps.values(), outputs)


def _choose_readable(rows: Iterable[models.Attempt]) -> Iterator[models.Attempt]:
    """Those of a step that have an output and fit, in order.

    What is said of an issue must depend neither on other steps of the page nor on which attempt is selected.
    """
    free = MAX_READ_BYTES
    for row in rows:
        size: int = row.stored_bytes  # type: ignore[attr-defined]  # annotated
        if row.has_output and size <= free:  # type: ignore[attr-defined]  # annotated
            free -= size
            yield row


def _list_alike(rows: Sequence[models.Attempt]) -> Iterator[models.Attempt]:
    """Attempts of a step whose outputs are as long as the one before or after them."""
    brought = [row for row in rows if row.has_output]  # type: ignore[attr-defined]  # annotated
    sizes: list[int] = [row.stored_bytes for row in brought]  # type: ignore[attr-defined]  # annotated
    for place, row in enumerate(brought):
        if sizes[place] in (*sizes[max(place - 1, 0) : place], *sizes[place + 1 : place + 2]):
            yield row


def _find_same(steps: Iterable[Sequence[models.Attempt]], outputs: Mapping[int, Any]) -> dict[int, models.Attempt]:
    same: dict[int, models.Attempt] = {}
    for own in steps:
        before: models.Attempt | None = None
        for row in (row for row in own if row.has_output):  # type: ignore[attr-defined]  # annotated
            is_known = before and row.pk in outputs and before.pk in outputs
            # To the letter, with the order of keys: a line of one is that line of the other.
            if before and is_known and repr(outputs[row.pk]) == repr(outputs[before.pk]):
                same[row.pk] = same.get(before.pk, before)
            before = row
    return same


def load_outputs(shown: Collection[models.Attempt], compared: Collection[models.Attempt] = ()) -> dict[int, Any]:
    """The outputs of all these rows of ``list_attempt_rows`` by their keys.

    Those ``shown`` get their ``output``, and ``unusable_output``, what came back instead of one.
    """
    wanted = {row.pk: row for row in (*shown, *compared) if row.has_output}  # type: ignore[attr-defined]  # annotated
    outputs = dict(_fetch_column("output", wanted))
    others = {row.pk: row for row in shown if row.pk not in outputs}
    for row in shown:
        row.output = outputs.get(row.pk)
    unusable = [key for key, row in others.items() if row.has_raw_output]  # type: ignore[attr-defined]  # annotated
    for key, came_back in _fetch_column("raw_output", unusable):
        others[key].unusable_output = came_back  # type: ignore[attr-defined]  # as if it were annotated
    return outputs


def _fetch_column(name: str, keys: Collection[int]) -> Iterable[tuple[int, Any]]:
    return models.Attempt.objects.filter(pk__in=keys).order_by().values_list("pk", name) if keys else ()


RUNNING = "running"

_MAX_CONTEXT_LINES = 200
_MAX_VALUE_LENGTH = 80
"""Characters of the offending value that an issue quotes."""


def view_attempt(
    row: models.Attempt,
    issues: Sequence[models.Issue],
    run: Run,
    spec: StepSpec | None,
    *,
    run_url: str = "",
    traced: StepIssues | None = None,
    hidden: dict[str, Any] | None = None,
    base: models.Attempt | None = None,
    is_compared: bool = False,
    is_alone: bool = False,
    issue_page: int = 1,
    view: View = View.JSON,
    address: str = "",
) -> dict[str, Any]:
    """One attempt for its templates: its output beside its own issues.

    The row must have what it brought (``load_outputs``), and with ``is_compared`` so must ``base``, the attempt before
    it that has an output. Of ``issues`` those of ``list_page`` must be whole. ``traced`` are the issues of all attempts
    of the step. Issues of an attempt that ``is_alone`` on its page have short ids: ``i3``. ``spec`` is the
    step's definition, for the checklist. ``view`` is how the output is shown, and ``address`` what those of the other
    views begin with.

    Of what is given, ``is_usable`` says whether ``output`` is the output, rather than what came back instead of one;
    ``compared_with`` is the attempt that it can be compared with, and with ``is_compared`` the ``diff`` is to be shown,
    which is None also where the outputs are too long. ``url`` and ``document_url``, of the whole attempt as JSON, are
    empty away from the pages of its run. ``hidden`` and ``checklist`` are None where they are not known.
    """
    index, state = row.step.index, find_state(row, run)
    id = anchor_attempt(index, row.number)
    url = f"{run_url}{address_attempt(index, row.number)}" if run_url else ""
    is_usable = bool(getattr(row, "has_output", False)) or row.output is not None
    prefix = "" if is_alone else f"{id}-"
    page = list_page(issues, issue_page)
    marks = [
        Mark(issue.severity, name_issue(issue), f"{prefix}i{issue.position}", issue.path, number, issue.description)
        for number, issue in enumerate(page, start=1)
    ]
    output = _view_output(row, marks, view=view, prefix=id, address=address, download_url=f"{url}?download")
    diff = None
    if is_compared and base is not None and row.output is not None:
        diff = compare_outputs(base.output, row.output, marks)
    shown = diff or output
    anchors = shown["anchors"] if shown else {}
    is_compared = is_compared and base is not None and is_usable
    queries = [*([] if is_compared else ["diff=1"]), *([f"issues={issue_page}"] if issue_page > 1 else [])]
    title = "Output (invalid, not audited)" if state == "invalid" else "Output"
    return {
        "row": row,
        "step": index,
        "id": id,
        "url": url,
        "document_url": f"{url.removesuffix('/')}.json" if url else "",
        "state": state,
        "badge": STATES[state],
        "is_local": spec is not None and spec.is_local,
        "output": output,
        "output_title": "What came back (not usable as an output)" if output and not is_usable else title,
        "is_usable": is_usable,
        "compared_with": base.number if base is not None and is_usable else None,
        "changes_url": f"{url}?{'&'.join(queries)}" if queries else url,
        "is_compared": is_compared,
        "diff": diff,
        "issues": [
            {
                **view_issue(issue, mark.issue_id, mark.number, anchors),
                **_list_details(issue, row.output),
                "marks": traced.list_marks(issue.pk) if traced else [],
            }
            for issue, mark in zip(page, marks, strict=True)
        ],
        "issue_page": page,
        "counts": count_severities(issues),
        "fixed": traced.list_fixed(row.number) if traced is not None else None,
        "hidden": hidden,
        "checklist": spec and build_checklist(spec, row.outcome, issues, row.output, prefix=prefix),
    }


def view_issue(issue: models.Issue, id: str, number: int, anchors: Mapping[str, str]) -> dict[str, Any]:
    """An issue for its template; ``number`` is what its page calls it, and ``anchors`` lead to marks in outputs."""
    return {
        "row": issue,
        "id": id,
        "number": number,
        "title": name_issue(issue),
        "code": show_code(issue),
        "path": cut_text(issue.path or "", SHORT_TEXT),
        "anchor": anchors.get(id, ""),
    }


def _list_details(issue: models.Issue, output: Any) -> dict[str, Any]:
    """What is at the place of an issue in ``output``, and what its audit said beside its words."""
    is_missing, value = quote_value(output, issue.path)
    return {
        "is_missing": is_missing,
        "value": value,
        "suggestions": [str(words) for words in issue.suggestions[:MAX_SUGGESTIONS]],
        "more_suggestions": max(len(issue.suggestions) - MAX_SUGGESTIONS, 0),
        "context": _list_context(issue.context),
        "added_fields": _list_context(issue.added_fields),
    }


def find_state(row: models.Attempt, run: Run) -> str:
    """The outcome of an attempt, or that it runs; one that a run left running when it ended was interrupted."""
    return row.outcome or ("interrupted" if run.has_ended else RUNNING)


def count_severities(issues: Iterable[models.Issue]) -> IssueCounts:
    """Count issues by severity."""
    return list_counts(Counter(issue.severity for issue in issues))


def _view_output(row: models.Attempt, marks: Sequence[Mark], *, prefix: str, **where: Any) -> dict[str, Any] | None:
    """The output of an attempt that ``load_outputs`` has read, or what came back instead of one."""
    came = getattr(row, "unusable_output", None) if row.output is None else row.output
    if row.output is None and isinstance(came, str):
        return view_text(came, prefix=prefix, download_url=where["download_url"])
    return None if came is None else view_output(came, marks, prefix=prefix, **where)


def quote_value(output: Any, path: str | None) -> tuple[bool, str]:
    """Whether a path leads to nothing in an output, else its value, cut if long; empty for lists and maps."""
    if not path or output is None:
        return False, ""
    try:
        value = resolve_pointer(output, path)
    except (LookupError, ValueError):
        return True, ""
    if isinstance(value, dict | list) and value:
        return False, ""
    text = value if isinstance(value, str) and value else list_compact(value, _MAX_VALUE_LENGTH)
    return False, show_invisible(text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 1]}…")


def _list_context(values: Mapping[str, Any]) -> Listing | None:
    """What an audit said beside its words, as lines; None if that is nothing."""
    return list_json(values, max_lines=_MAX_CONTEXT_LINES, max_characters=MAX_CONTEXT_LENGTH) if values else None
