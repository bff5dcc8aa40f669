"""One attempt as pages show it: its output beside its own issues, and the lines that they point at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.engine.json_values import resolve_pointer
from flows.engine.plugins import registry
from flows.engine.spec import StepSpec
from runs import models
from runs.history.checklist import Checklist, build_checklist
from runs.history.issue_links import (
    HiddenIssues,
    IssuePages,
    address_attempt,
    anchor_attempt,
    count_page,
    list_page,
    name_issue,
    show_code,
)
from runs.history.json_lines import Listing, Mark, list_compact, list_json
from runs.history.lifecycle import FixedIssues, Lifecycle, StepIssues
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.history.output_view import OutputView, View, view_output, view_text
from runs.history.texts import MAX_CONTEXT_LENGTH, MAX_SUGGESTIONS, SHORT_TEXT, cut_text, show_invisible
from runs.models import Run
from runs.pages.badges import STATES, Badge, IssueCounts, list_counts

RUNNING = "running"

_MAX_CONTEXT_LINES = 200
_MAX_VALUE_LENGTH = 80
"""Characters of the offending value that an issue quotes."""


@dataclass(frozen=True, slots=True)
class IssueView:
    """One issue with what it says of the output beside it."""

    row: models.Issue
    id: str
    number: int
    """On its page, from 1."""
    title: str
    anchor: str
    """The id of its mark in the output, if there is one: at its path, or at what that is missing in."""
    is_missing: bool
    """Whether nothing stands at its path."""
    value: str
    """What stands there; empty where that is a list, an object or missing."""
    lifecycle: Lifecycle | None
    """What became of it from attempt to attempt; None while that can't be known."""

    @property
    def code(self) -> str:
        return show_code(self.row)

    @property
    def path(self) -> str:
        return str(cut_text(self.row.path or "", SHORT_TEXT))

    @property
    def suggestions(self) -> list[str]:
        return [str(words) for words in self.row.suggestions[:MAX_SUGGESTIONS]]

    @property
    def more_suggestions(self) -> int:
        """How many are not shown."""
        return max(len(self.row.suggestions) - MAX_SUGGESTIONS, 0)

    @property
    def context(self) -> Listing | None:
        return _list_context(self.row.context)

    @property
    def added_fields(self) -> Listing | None:
        return _list_context(self.row.added_fields)


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: its output beside its own issues."""

    row: models.Attempt
    step: int
    id: str
    url: str
    """Where it is selected; empty away from the pages of its run."""
    state: str
    is_local: bool
    output: OutputView | None
    is_usable: bool
    """Whether ``output`` is the output; else it is what came back instead of one."""
    compared_with: int | None
    """The attempt that the output can be compared with: the one before that has an output."""
    is_compared: bool
    """Whether ``diff`` is to be shown instead of the output."""
    diff: OutputDiff | None
    """None also where the outputs are too long to be compared."""
    issues: tuple[IssueView, ...]
    """Those of one of their pages, the most severe first."""
    issue_pages: IssuePages | None
    """None where all issues are shown."""
    counts: IssueCounts
    fixed: FixedIssues | None
    """Issues of earlier attempts that this one fixed."""
    hidden: HiddenIssues | None
    """What the filter hid of earlier attempts; None for local steps, and where that is not known."""
    checklist: Checklist | None
    """Why it passed or failed; None while it runs, and where its step's definition is not known."""

    @property
    def number(self) -> int:
        return self.row.number

    @property
    def badge(self) -> Badge:
        return STATES[self.state]

    @property
    def output_title(self) -> str:
        if self.output is not None and not self.is_usable:
            return "What came back (not usable as an output)"
        return "Output (invalid, not audited)" if self.state == "invalid" else "Output"

    @property
    def changes_url(self) -> str:
        """Where what changed since ``compared_with`` is shown, or the output again."""
        page = self.issue_pages.number if self.issue_pages else 1
        queries = [*([] if self.is_compared else ["diff=1"]), *([f"issues={page}"] if page > 1 else [])]
        return f"{self.url}?{'&'.join(queries)}" if queries else self.url

    @property
    def issue_count(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def document_url(self) -> str:
        """Of the whole attempt as JSON; empty away from the pages of its run."""
        return f"{self.url.removesuffix('/')}.json" if self.url else ""


def view_attempt(
    row: models.Attempt,
    issues: Sequence[models.Issue],
    run: Run,
    spec: StepSpec | None,
    *,
    run_url: str = "",
    traced: StepIssues | None = None,
    hidden: HiddenIssues | None = None,
    base: models.Attempt | None = None,
    is_compared: bool = False,
    is_alone: bool = False,
    issue_page: int = 1,
    view: View = View.JSON,
    address: str = "",
) -> AttemptView:
    """Turn the row of an attempt and those of its issues into a view.

    The row must have what it brought (``read_outputs``), and with ``is_compared`` so must ``base``, the attempt before
    it that has an output. Of ``issues`` those of ``list_page`` must be whole. ``traced`` are the issues of all attempts
    of the step. Issues of an attempt that ``is_alone`` on its page have short ids: ``i3``. ``spec`` is the
    step's definition, for the checklist. ``view`` is how the output is shown, and ``address`` what those of the other
    views begin with.
    """
    index = row.step.index
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
    anchors = shown.anchors or {} if shown else {}
    return AttemptView(
        row=row,
        step=index,
        id=id,
        url=url,
        state=find_state(row, run),
        is_local=spec is not None and spec.is_local,
        output=output,
        is_usable=is_usable,
        compared_with=base.number if base is not None and is_usable else None,
        is_compared=is_compared and base is not None and is_usable,
        diff=diff,
        issues=tuple(_view_issues(prefix, page, row.output, anchors, traced or StepIssues())),
        issue_pages=count_page(issue_page, len(page), len(issues)),
        counts=count_severities(issues),
        fixed=traced.list_fixed(row.number) if traced is not None else None,
        hidden=hidden,
        checklist=None if spec is None else _explain(row, issues, spec, prefix),
    )


def find_state(row: models.Attempt, run: Run) -> str:
    """The outcome of an attempt, or that it runs; one that a run left running when it ended was interrupted."""
    return row.outcome or ("interrupted" if run.has_ended else RUNNING)


def count_severities(issues: Iterable[models.Issue]) -> IssueCounts:
    """Count issues by severity."""
    return list_counts(Counter(issue.severity for issue in issues))


def _explain(row: models.Attempt, issues: Sequence[models.Issue], spec: StepSpec, prefix: str) -> Checklist | None:
    known = registry.find_type(spec.output_type)
    has_type_audit = known is not None and callable(getattr(known.model, "audit", None))
    return build_checklist(spec, row.outcome, issues, row.output, prefix=prefix, has_type_audit=has_type_audit)


def _view_output(row: models.Attempt, marks: Sequence[Mark], *, prefix: str, **where: Any) -> OutputView | None:
    """The output of an attempt that ``read_outputs`` has read, or what came back instead of one."""
    came = getattr(row, "unusable_output", None) if row.output is None else row.output
    if row.output is None and isinstance(came, str):
        return view_text(came, prefix=prefix, download_url=where["download_url"])
    return None if came is None else view_output(came, marks, prefix=prefix, **where)


def _view_issues(
    prefix: str, issues: Sequence[models.Issue], output: Any, anchors: Mapping[str, str], traced: StepIssues
) -> Iterator[IssueView]:
    for number, issue in enumerate(issues, start=1):
        id = f"{prefix}i{issue.position}"
        is_missing, value = quote_value(output, issue.path)
        lifecycle = traced.find_lifecycle(issue.pk)
        yield IssueView(issue, id, number, name_issue(issue), anchors.get(id, ""), is_missing, value, lifecycle)


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
