"""One attempt as pages show it: its output beside its own issues, and the lines that they point at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flows.engine.json_values import resolve_pointer
from flows.engine.spec import StepSpec
from runs import models
from runs.history.checklist import build_checklist
from runs.history.issue_links import (
    address_attempt,
    anchor_attempt,
    list_page,
    name_issue,
    show_code,
)
from runs.history.json_lines import Listing, Mark, list_compact, list_json
from runs.history.lifecycle import StepIssues
from runs.history.output_diff import compare_outputs
from runs.history.output_view import OutputView, View, view_output, view_text
from runs.history.texts import MAX_CONTEXT_LENGTH, MAX_SUGGESTIONS, SHORT_TEXT, cut_text, show_invisible
from runs.models import Run
from runs.pages.badges import STATES, IssueCounts, list_counts

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

    The row must have what it brought (``read_outputs``), and with ``is_compared`` so must ``base``, the attempt before
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
    anchors = shown.anchors if shown else {}
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
    """What stands at the place of an issue in ``output``, and what its audit said beside its words."""
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


def _view_output(row: models.Attempt, marks: Sequence[Mark], *, prefix: str, **where: Any) -> OutputView | None:
    """The output of an attempt that ``read_outputs`` has read, or what came back instead of one."""
    came = getattr(row, "unusable_output", None) if row.output is None else row.output
    if row.output is None and isinstance(came, str):
        return view_text(came, prefix=prefix, download_url=where["download_url"])
    return None if came is None else view_output(came, marks, prefix=prefix, **where)


def quote_value(output: Any, path: str | None) -> tuple[bool, str]:
    """Whether nothing stands at a path of an output, and what does, cut where it is long; empty for lists and maps."""
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
