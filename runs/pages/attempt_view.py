"""One attempt as pages show it: its output beside its own issues, and the lines that they point at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from flows.engine.history import COUNTED, UNREPORTED_USAGE, TokenUsage
from flows.engine.json_values import resolve_pointer
from flows.engine.plugins import registry
from flows.engine.spec import StepSpec
from runs import formatting, models
from runs.history.checklist import Checklist, build_checklist
from runs.history.issue_links import (
    IssueLink,
    IssuePages,
    ToldFeedback,
    address_attempt,
    anchor_attempt,
    count_page,
    join_address,
    list_page,
    name_issue,
)
from runs.history.json_lines import Listing, Mark, list_compact, list_json
from runs.history.lifecycle import Mark as IssueFate
from runs.history.lifecycle import StepIssues
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.history.output_view import OutputView, View, view_output, view_text
from runs.history.texts import MAX_CONTEXT_LENGTH, MAX_SUGGESTIONS, SHORT_TEXT, CutText, cut_text, show_invisible
from runs.models import Run
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.stored_history import read_usage

RUNNING = "running"

_MOST_CONTEXT_LINES = 200
_LONGEST_VALUE = 80
"""Characters of the offending value that an issue quotes."""
_LOOKS = {
    "introduced": ("plus-circle", "quiet"),
    "persisted": ("arrow-right-circle", "quiet"),
    "returned": ("arrow-uturn-left", "errored"),
    "fixed": ("check-circle", "passed"),
    "remains": ("arrow-long-right", "quiet"),
    "unlisted": ("question-mark-circle", "quiet"),
}


class CallingStep(Protocol):
    """What must be known of an attempt's step: whether it calls a model."""

    @property
    def is_local(self) -> bool:
        """It is computed here, without one."""


@dataclass(frozen=True, slots=True)
class MarkView:
    """One thing that became of an issue; ``words`` go on with ``linked``, which leads to ``url``, and ``rest``."""

    icon: str
    tone: str
    words: str
    linked: str
    url: str
    rest: str


@dataclass(frozen=True, slots=True)
class LinkView:
    """An issue that is named where it doesn't stand."""

    url: str
    severity: str
    badge: Badge
    title: str
    place: str
    where: str
    """Its attempt, as far as that is not the one on the page."""


@dataclass(frozen=True, slots=True)
class SeverityCount:
    """How many issues of a severity there are."""

    name: str
    badge: Badge
    count: int


@dataclass(frozen=True, slots=True)
class IssueView:
    """One issue with what it says of the output beside it."""

    id: str
    number: int
    """On its page, from 1."""
    severity: str
    badge: Badge
    title: str
    code: str
    description: CutText
    path: str | None
    anchor: str
    """The id of its mark in the output, if there is one: at its ``path``, or at what that is missing in."""
    is_missing: bool
    """Whether nothing stands at its path."""
    value: str
    """What stands there; empty where that is a list, an object or missing."""
    suggestions: tuple[CutText, ...]
    more_suggestions: int
    """How many are not shown."""
    context: Listing | None
    added_fields: Listing | None
    marks: tuple[MarkView, ...]
    """What became of it from attempt to attempt; empty while that can't be known."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: its output beside its own issues."""

    id: str
    step: int
    number: int
    state: str
    badge: Badge
    is_local: bool
    is_removed: bool
    """Whether retention has removed what it read and wrote."""
    url: str
    """Where it is selected; empty away from the pages of its run."""
    output: OutputView | None
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
    same_as: int | None
    """The first of the attempts right before that gave this very output."""
    issues: tuple[IssueView, ...]
    """Those of one of their pages, the most severe first."""
    issue_pages: IssuePages | None
    """None where all issues are shown."""
    fixed: tuple[LinkView, ...]
    """Issues of earlier attempts that this one fixed, the most severe of them."""
    more_fixed: int
    counts: tuple[tuple[str, int], ...]
    usage: TokenUsage | None
    """None while the attempt runs."""
    duration: float | None
    error: Mapping[str, Any] | None
    error_message: CutText
    failure_reason: CutText
    model: str
    finish_reason: str
    response_id: str
    plugins: tuple[tuple[str, str], ...]
    has_raw_output: bool
    has_request: bool
    told: ToldFeedback | None
    """What the model was shown of earlier attempts; None for local steps, and where that is not known."""
    hidden: tuple[LinkView, ...]
    """Issues that the severity filter kept from the model, as far as they are named."""
    checklist: Checklist | None
    """Why it passed or failed; None while it runs, and where its step's definition is not known."""
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
    def has_issues(self) -> bool:
        return any(count for _, count in self.counts)

    @property
    def severities(self) -> tuple[SeverityCount, ...]:
        """Its issues by severity, without those that it has none of."""
        return list_counts(self.counts)

    @property
    def issue_count(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def has_tokens(self) -> bool:
        """Whether the numbers of tokens mean anything: a call was made and reported."""
        return self.usage is not None and self.usage.reported and not self.is_local

    @property
    def document_url(self) -> str:
        """Of the whole attempt as JSON; empty away from the pages of its run."""
        return f"{self.url.removesuffix('/')}.json" if self.url else ""

    @property
    def cost(self) -> str:
        return formatting.format_cost(self.usage.cost, self.usage.unpriced) if self.usage else formatting.NOTHING


def list_counts(counts: Iterable[tuple[str, int]]) -> tuple[SeverityCount, ...]:
    """Numbers of issues by severity with their badges, without zeros."""
    return tuple(SeverityCount(name, SEVERITIES[name], count) for name, count in counts if count)


def view_attempt(
    row: models.Attempt,
    issues: Sequence[models.Issue],
    step: CallingStep,
    run: Run,
    *,
    run_url: str = "",
    traced: StepIssues | None = None,
    told: ToldFeedback | None = None,
    base: models.Attempt | None = None,
    same_as: models.Attempt | None = None,
    is_compared: bool = False,
    is_alone: bool = False,
    issue_page: int = 1,
    spec: StepSpec | None = None,
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
    views = tuple(_view_issues(prefix, page, row.output, anchors, traced or StepIssues(), run_url))
    state = find_state(row, run)
    fixed = traced.list_fixed(row.number) if traced is not None else None
    error = row.error or {}
    ended = row.ended_at if row.started_at else None
    return AttemptView(
        id=id,
        step=index,
        number=row.number,
        state=state,
        badge=STATES[state],
        is_local=step.is_local,
        is_removed=run.outputs_removed_at is not None,
        url=url,
        output=output,
        stored_bytes=getattr(row, "stored_bytes", 0),
        is_usable=is_usable,
        compared_with=base.number if base is not None and is_usable else None,
        is_compared=is_compared and base is not None and is_usable,
        diff=diff,
        same_as=same_as.number if same_as is not None else None,
        issues=views,
        issue_pages=count_page(issue_page, len(views), len(issues)),
        fixed=tuple(view_link(link, run_url, seen_from=index) for link in fixed.links) if fixed else (),
        more_fixed=fixed.more if fixed else 0,
        counts=count_severities(issues),
        usage=view_usage(row),
        duration=(ended - row.started_at).total_seconds() if ended and row.started_at else None,
        error=row.error,
        error_message=cut_text(str(error.get("message", ""))),
        failure_reason=cut_text(row.failure_reason),
        model=show_invisible(row.model),
        finish_reason=show_invisible(row.finish_reason),
        response_id=show_invisible(row.response_id),
        plugins=tuple(sorted(row.plugins.items())),
        has_raw_output=bool(getattr(row, "has_raw_output", False)) and is_usable,
        has_request=bool(getattr(row, "has_request", False)),
        told=told,
        hidden=tuple(view_link(link, run_url, seen_from=index) for link in told.hidden_issues) if told else (),
        checklist=None if spec is None else _explain(row, issues, spec, prefix),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def find_state(row: models.Attempt, run: Run) -> str:
    """The outcome of an attempt, or that it runs; one that a run left running when it ended was interrupted."""
    return row.outcome or ("interrupted" if run.has_ended else RUNNING)


def count_severities(issues: Iterable[models.Issue]) -> tuple[tuple[str, int], ...]:
    """How many issues of each severity there are, the most severe first."""
    counts = Counter(issue.severity for issue in issues)
    return tuple((name, counts[name]) for name in SEVERITIES)


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


def view_marks(marks: Iterable[IssueFate], run_url: str) -> tuple[MarkView, ...]:
    """What became of an issue, with links that hold on any page."""
    return tuple(
        MarkView(
            *_LOOKS[mark.kind],
            mark.words,
            mark.linked,
            join_address(run_url, mark.address) if mark.address and run_url else "",
            mark.rest,
        )
        for mark in marks
    )


def view_link(link: IssueLink, run_url: str, *, seen_from: int = 0) -> LinkView:
    """A link to an issue from a page about an attempt of step ``seen_from``."""
    attempt = f"attempt {link.number}"
    where = attempt if link.step == seen_from else f"step {link.step}, {attempt}"
    url = join_address(run_url, link.address)
    return LinkView(url, link.severity, SEVERITIES[link.severity], link.title, link.place, where)


def view_usage(row: models.Attempt) -> TokenUsage | None:
    """What an attempt used; None while it runs."""
    if not row.outcome:
        return None
    usage: models.TokenUsage | None = getattr(row, "usage", None)
    return UNREPORTED_USAGE if usage is None else read_usage(usage)


def _view_issues(
    prefix: str,
    issues: Sequence[models.Issue],
    output: Any,
    anchors: Mapping[str, str],
    traced: StepIssues,
    run_url: str,
) -> Iterator[IssueView]:
    for number, issue in enumerate(issues, start=1):
        id = f"{prefix}i{issue.position}"
        lifecycle = traced.find_lifecycle(issue.pk)
        is_missing, value = _read_value(output, issue.path)
        yield IssueView(
            id=id,
            number=number,
            severity=issue.severity,
            badge=SEVERITIES[issue.severity],
            title=name_issue(issue),
            code=show_invisible(issue.code),
            description=cut_text(issue.description),
            path=None if issue.path is None else str(cut_text(issue.path, SHORT_TEXT)),
            anchor=anchors.get(id, ""),
            is_missing=is_missing,
            value=value,
            suggestions=tuple(cut_text(str(words)) for words in issue.suggestions[:MAX_SUGGESTIONS]),
            more_suggestions=max(len(issue.suggestions) - MAX_SUGGESTIONS, 0),
            context=_list_context(issue.context),
            added_fields=_list_context(issue.added_fields),
            marks=view_marks(lifecycle.marks, run_url) if lifecycle else (),
        )


def _read_value(output: Any, path: str | None) -> tuple[bool, str]:
    """Whether nothing stands at a path of the output, and what does, cut where it is long."""
    if not path or output is None:
        return False, ""
    try:
        value = resolve_pointer(output, path)
    except (LookupError, ValueError):
        return True, ""
    if isinstance(value, dict | list) and value:
        return False, ""
    text = value if isinstance(value, str) and value else list_compact(value, _LONGEST_VALUE)
    return False, show_invisible(text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…")


def _list_context(values: Mapping[str, Any]) -> Listing | None:
    """What an audit said beside its words, as lines; None if that is nothing."""
    return list_json(values, max_lines=_MOST_CONTEXT_LINES, max_characters=MAX_CONTEXT_LENGTH) if values else None
