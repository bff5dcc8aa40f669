"""One attempt as a page shows it: its output beside its own issues, and the lines that they point at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from flows.engine.history import COUNTED, UNREPORTED_USAGE, TokenUsage
from runs import models
from runs.history.feedback import ToldFeedback
from runs.history.issue_links import IssuePages, anchor_attempt, count_page, list_page, name_issue
from runs.history.json_lines import Listing, Place, list_json, list_text, show_invisible
from runs.history.lifecycle import FixedIssues, Lifecycle, StepIssues
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.history.texts import LONGEST_CONTEXT, MOST_SUGGESTIONS, SHORT_TEXT, CutText, cut_text
from runs.models import Run
from runs.pages.badges import SEVERITIES
from runs.stored_history import read_usage

RUNNING = "running"

MOST_LINES = 30_000
MOST_CHARACTERS = 1_000_000
"""What is shown of an output; a longer one is cut, and can be downloaded."""

_MOST_CONTEXT_LINES = 200


class CallingStep(Protocol):
    """What must be known of an attempt's step: whether it calls a model."""

    @property
    def is_local(self) -> bool:
        """It is computed here, without one."""


@dataclass(frozen=True, slots=True)
class IssueMark:
    """An issue that points at a line of the output beside it."""

    severity: str
    title: str
    issue_id: str


@dataclass(frozen=True, slots=True)
class IssueView:
    """One issue. ``place`` is the line of the output that its ``path`` leads to, if there is one."""

    id: str
    severity: str
    title: str
    code: str
    description: CutText
    path: str | None
    place: Place | None
    line_id: str
    suggestions: tuple[CutText, ...]
    more_suggestions: int
    """How many are not shown."""
    context: Listing | None
    added_fields: Listing | None
    lifecycle: Lifecycle | None
    """What became of it from attempt to attempt; None while that can't be told."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: its output beside its own issues. What is not ``is_loaded`` has neither, only how many issues."""

    id: str
    step: int
    number: int
    state: str
    is_local: bool
    is_removed: bool
    """Whether retention has removed what it read and wrote."""
    is_open: bool
    is_loaded: bool
    address: str
    """Of the attempt on a page of its own; its parts are below."""
    output: Listing | None
    stored_bytes: int
    """The size of what it brought."""
    is_usable: bool
    """Whether ``output`` is the output; else it is what came back instead of one."""
    compared_with: int | None
    """The attempt that the output can be compared with: the one before that has an output."""
    is_compared: bool
    """Whether ``diff`` is to be shown instead of the output."""
    diff: OutputDiff | None
    """None also where the outputs are too long to be compared."""
    issues: tuple[IssueView, ...]
    """Those of one of their pages, the gravest first."""
    issue_pages: IssuePages | None
    """None where all issues are shown."""
    fixed: FixedIssues | None
    """Issues of earlier attempts that this one fixed; None if there are none, and while it is not loaded."""
    counts: tuple[tuple[str, int], ...]
    marks: Mapping[int, tuple[IssueMark, ...]]
    usage: TokenUsage | None
    """None while the attempt runs."""
    duration: float | None
    error: Mapping[str, Any] | None
    failure_reason: CutText
    model: str
    finish_reason: str
    response_id: str
    plugins: tuple[tuple[str, str], ...]
    has_raw_output: bool
    has_request: bool
    told: ToldFeedback | None
    """What the model was told of earlier attempts; None for local steps, and while the attempt is not loaded."""
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def is_running(self) -> bool:
        return self.state == RUNNING

    @property
    def is_try(self) -> bool:
        """Whether it counts as a try of its step. While it runs it is taken for one."""
        return self.is_running or self.state in COUNTED

    @property
    def has_issues(self) -> bool:
        return any(count for _, count in self.counts)

    @property
    def is_clean(self) -> bool:
        """It has ended without an issue."""
        return not self.has_issues and not self.is_running

    @property
    def has_tokens(self) -> bool:
        """Whether the numbers of tokens mean anything: a call was made and reported."""
        return self.usage is not None and self.usage.reported and not self.is_local

    @property
    def document_address(self) -> str:
        """Of the whole attempt as JSON; empty away from the pages of its run."""
        return f"{self.address.removesuffix('/')}.json" if self.address else ""


def view_attempt(
    row: models.Attempt,
    issues: Sequence[models.Issue],
    step: CallingStep,
    is_open: bool,
    run: Run,
    *,
    address: str = "",
    traced: StepIssues | None = None,
    told: ToldFeedback | None = None,
    is_loaded: bool = True,
    base: models.Attempt | None = None,
    is_compared: bool = False,
    issue_page: int = 1,
) -> AttemptView:
    """Turn the row of an attempt and those of its issues into a view.

    With ``is_loaded`` the row must have what it brought (``read_outputs``), and with ``is_compared`` so must ``base``,
    the attempt before it that has an output. Of ``issues`` those of ``list_page`` must be whole. ``traced``
    are the issues of all attempts of the step.
    """
    index = row.step.index
    id = anchor_attempt(index, row.number)
    is_usable = bool(getattr(row, "has_output", False)) or (is_loaded and row.output is not None)
    output: Listing | None = None
    views: tuple[IssueView, ...] = ()
    diff: OutputDiff | None = None
    marks: dict[int, tuple[IssueMark, ...]] = {}
    if is_loaded:
        output = list_what_came(row)
        views = _view_issues(id, list_page(issues, issue_page), output, traced or StepIssues())
        for view in views:
            if view.place:
                mark = IssueMark(view.severity, view.title, view.id)
                marks[view.place.line] = (*marks.get(view.place.line, ()), mark)
        if is_compared and base is not None and output is not None:
            diff = compare_outputs(base.output, row.output, list_output(base.output), output, kept=marks)
    severities = Counter(issue.severity for issue in issues)
    is_running = not row.outcome and not run.has_ended
    ended = row.ended_at if row.started_at else None
    return AttemptView(
        id=id,
        step=index,
        number=row.number,
        state=row.outcome or (RUNNING if is_running else "interrupted"),
        is_local=step.is_local,
        is_removed=run.outputs_removed_at is not None,
        is_open=is_open,
        is_loaded=is_loaded,
        address=address,
        output=output,
        stored_bytes=getattr(row, "stored_bytes", 0),
        is_usable=is_usable,
        compared_with=base.number if base is not None and is_usable else None,
        is_compared=is_compared and base is not None and is_usable,
        diff=diff,
        issues=views,
        issue_pages=count_page(issue_page, len(views), len(issues)) if is_loaded else None,
        fixed=traced.list_fixed(row.number) if traced is not None and is_loaded else None,
        counts=tuple((name, severities[name]) for name in SEVERITIES),
        marks=marks,
        usage=_view_usage(row),
        duration=(ended - row.started_at).total_seconds() if ended and row.started_at else None,
        error=row.error,
        failure_reason=cut_text(row.failure_reason),
        model=row.model,
        finish_reason=row.finish_reason,
        response_id=row.response_id,
        plugins=tuple(sorted(row.plugins.items())),
        has_raw_output=bool(getattr(row, "has_raw_output", False)) and is_usable,
        has_request=bool(getattr(row, "has_request", False)),
        told=told,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def list_output(output: Any) -> Listing:
    """An output as lines; of a long one only the first megabyte."""
    return list_json(output, max_lines=MOST_LINES, max_characters=MOST_CHARACTERS)


def list_what_came(row: models.Attempt) -> Listing | None:
    """The output of an attempt that ``read_outputs`` has read, or what came back instead of one."""
    if row.output is not None:
        return list_output(row.output)
    came_back = getattr(row, "unusable_output", None)
    if isinstance(came_back, str):
        return list_text(came_back, max_lines=MOST_LINES, max_characters=MOST_CHARACTERS)
    return None if came_back is None else list_output(came_back)


def _view_issues(
    attempt_id: str, issues: Sequence[models.Issue], output: Listing | None, traced: StepIssues
) -> tuple[IssueView, ...]:
    views = []
    for issue in issues:
        place = output.find(issue.path) if output else None
        views.append(
            IssueView(
                id=f"{attempt_id}-i{issue.position}",
                severity=issue.severity,
                title=name_issue(issue),
                code=show_invisible(issue.code),
                description=cut_text(issue.description),
                path=None if issue.path is None else str(cut_text(issue.path, SHORT_TEXT)),
                place=place,
                line_id=f"{attempt_id}-l{place.line}" if place else "",
                suggestions=tuple(cut_text(str(words)) for words in issue.suggestions[:MOST_SUGGESTIONS]),
                more_suggestions=max(len(issue.suggestions) - MOST_SUGGESTIONS, 0),
                context=_list_context(issue.context),
                added_fields=_list_context(issue.added_fields),
                lifecycle=traced.find_lifecycle(issue.pk),
            )
        )
    return tuple(views)


def _list_context(values: Mapping[str, Any]) -> Listing | None:
    """What an audit said beside its words, as lines; None if that is nothing."""
    return list_json(values, max_lines=_MOST_CONTEXT_LINES, max_characters=LONGEST_CONTEXT) if values else None


def _view_usage(row: models.Attempt) -> TokenUsage | None:
    if not row.outcome:
        return None
    usage: models.TokenUsage | None = getattr(row, "usage", None)
    if usage is None:
        return UNREPORTED_USAGE
    return read_usage(usage)
