"""One attempt as a page shows it: its output beside its own issues, and the lines that they point at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flows.engine.spec import StepSpec
from flows.engine.usage import UNREPORTED_USAGE, TokenUsage
from runs import models
from runs.models import Run
from runs.pages.badges import SEVERITIES
from runs.pages.issue_lifecycle import Lifecycle
from runs.pages.json_lines import Listing, Place, list_json, list_text, show_invisible
from runs.pages.told_feedback import ToldFeedback
from runs.stored_history import read_usage

RUNNING = "running"


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
    description: str
    path: str | None
    place: Place | None
    line_id: str
    suggestions: tuple[str, ...]
    context: Listing | None
    added_fields: Listing | None
    lifecycle: Lifecycle | None
    """What became of it from attempt to attempt; None while that can't be told."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: its output beside its own issues."""

    id: str
    step: int
    number: int
    state: str
    is_local: bool
    is_open: bool
    output: Listing | None
    is_usable: bool
    """Whether ``output`` is the output; else it is what came back instead of one."""
    issues: tuple[IssueView, ...]
    counts: tuple[tuple[str, int], ...]
    marks: Mapping[int, tuple[IssueMark, ...]]
    usage: TokenUsage | None
    """None while the attempt runs."""
    duration: float | None
    error: Mapping[str, Any] | None
    failure_reason: str
    model: str
    finish_reason: str
    response_id: str
    plugins: tuple[tuple[str, str], ...]
    has_raw_output: bool
    has_request: bool
    told: ToldFeedback | None
    """What the model was told of earlier attempts; None for local steps."""
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def is_running(self) -> bool:
        return self.state == RUNNING

    @property
    def has_tokens(self) -> bool:
        """Whether the numbers of tokens mean anything: a call was made and reported."""
        return self.usage is not None and self.usage.reported and not self.is_local


def view_attempt(
    row: models.Attempt,
    issues: Sequence[models.Issue],
    step: StepSpec,
    is_latest: bool,
    run: Run,
    *,
    lifecycles: Mapping[int, Lifecycle] | None = None,
    told: ToldFeedback | None = None,
) -> AttemptView:
    """Turn the row of an attempt, with the annotations of ``load_run_page``, and those of its issues into a view."""
    id = f"s{row.step.index}a{row.number}"
    is_usable = row.output is not None
    shown = row.output if is_usable else getattr(row, "unusable_output", None)
    output = None
    if shown is not None:
        output = list_text(shown) if isinstance(shown, str) and not is_usable else list_json(shown)
    views = _view_issues(id, issues, output, lifecycles or {})
    marks: dict[int, tuple[IssueMark, ...]] = {}
    for view in views:
        if view.place:
            mark = IssueMark(view.severity, view.title, view.id)
            marks[view.place.line] = (*marks.get(view.place.line, ()), mark)
    is_running = not row.outcome and not run.has_ended
    ended = row.ended_at if row.started_at else None
    return AttemptView(
        id=id,
        step=row.step.index,
        number=row.number,
        state=row.outcome or (RUNNING if is_running else "interrupted"),
        is_local=step.is_local,
        is_open=is_latest,
        output=output,
        is_usable=is_usable,
        issues=views,
        counts=tuple((name, sum(issue.severity == name for issue in issues)) for name in SEVERITIES),
        marks=marks,
        usage=_view_usage(row),
        duration=(ended - row.started_at).total_seconds() if ended and row.started_at else None,
        error=row.error,
        failure_reason=show_invisible(row.failure_reason),
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


def _view_issues(
    attempt_id: str, issues: Sequence[models.Issue], output: Listing | None, lifecycles: Mapping[int, Lifecycle]
) -> tuple[IssueView, ...]:
    views = []
    for issue in sorted(issues, key=lambda issue: (list(SEVERITIES).index(issue.severity), issue.position)):
        place = output.find(issue.path) if output else None
        views.append(
            IssueView(
                id=f"{attempt_id}-i{issue.position}",
                severity=issue.severity,
                title=show_invisible(issue.audit or issue.code.replace("_", " ").capitalize()),
                code=show_invisible(issue.code),
                description=show_invisible(issue.description),
                path=None if issue.path is None else show_invisible(issue.path),
                place=place,
                line_id=f"{attempt_id}-l{place.line}" if place else "",
                suggestions=tuple(show_invisible(str(suggestion)) for suggestion in issue.suggestions),
                context=list_json(issue.context) if issue.context else None,
                added_fields=list_json(issue.added_fields) if issue.added_fields else None,
                lifecycle=lifecycles.get(issue.pk),
            )
        )
    return tuple(views)


def _view_usage(row: models.Attempt) -> TokenUsage | None:
    if not row.outcome:
        return None
    usage: models.TokenUsage | None = getattr(row, "usage", None)
    if usage is None:
        return UNREPORTED_USAGE
    return read_usage(usage)
