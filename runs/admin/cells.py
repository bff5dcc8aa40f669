"""What the lists and pages of history show of a row, as HTML or text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.models import Attempt, Issue, Run, TokenUsage
from runs.pages import figures
from runs.pages.badges import SEVERITIES
from runs.pages.issue_links import anchor_attempt
from runs.pages.json_lines import list_json
from runs.templatetags import toolflow

ATTEMPT_DOCUMENTS = ("input", "output", "raw_output", "error", "plugins", "failure_reason")
RUN_DOCUMENTS = (
    "input", "model_settings", "end_sentence", "flow__input_schema", "flow__description", "version__spec"
)  # fmt: skip
"""Columns that only pages of single rows read."""


def list_documents(path: str) -> tuple[str, ...]:
    """The big columns of the run that ``path`` leads to from a row, such as ``attempt__step__run__``."""
    return tuple(f"{path}{name}" for name in RUN_DOCUMENTS)


def link_run(run: Run, anchor: str = "") -> SafeString:
    """A link to the page of a run, or to one place on it: ``Run 12``."""
    return format_html('<a href="{}{}">Run {}</a>', reverse("runs:page", args=[run.pk]), anchor, run.pk)


def link_attempt_on_run(attempt: Attempt) -> SafeString:
    """A link to the attempt among the others, on the page of its run."""
    return link_run(attempt.step.run, f"#{anchor_attempt(attempt.step.index, attempt.number)}")


def link_attempt(attempt: Attempt, anchor: str = "") -> SafeString:
    """A link to the attempt's own page: ``Step 2, attempt 1``."""
    address = reverse("admin:runs_attempt_change", args=[attempt.pk])
    return format_html('<a href="{}{}">Step {}, attempt {}</a>', address, anchor, attempt.step.index, attempt.number)


def show_flow(run: Run) -> str:
    """The flow and the version that the run is pinned to: ``Colour theme v3``."""
    return f"{run.flow} v{run.version.number}"


def show_outcome(attempt: Attempt, run: Run) -> SafeString:
    """Icon and word; an attempt without an outcome is under way, unless its run ended without it."""
    return toolflow.state(attempt.outcome or ("interrupted" if run.has_ended else "running"))


def show_severity(issue: Issue) -> SafeString:
    """Icon and word."""
    badge = SEVERITIES[issue.severity]
    return format_html('<span class="state tone-{}">{}{}</span>', badge.tone, toolflow.icon(badge.icon), badge.word)


def show_issue_counts(issues: Iterable[Issue]) -> SafeString:
    """How many there are of each severity."""
    counts = Counter(issue.severity for issue in issues)
    return toolflow.issue_counts((name, counts[name]) for name in SEVERITIES)


def show_tokens(usage: TokenUsage | None) -> str:
    """Tokens in and out; a dash where there were none, or none were reported."""
    if usage is None or not usage.reported or not usage.total:
        return figures.NOTHING
    return f"{figures.format_count(usage.prompt)} in, {figures.format_count(usage.completion)} out"


def show_cost(usage: TokenUsage | None) -> str:
    """In US dollars."""
    return figures.format_cost(usage.cost, usage.unpriced) if usage else figures.NOTHING


def find_usage(attempt: Attempt) -> TokenUsage | None:
    """What an attempt used; None while it is under way."""
    return getattr(attempt, "usage", None)


def show_json(value: Any) -> SafeString | str:
    """A JSON value as numbered lines, cut where it is very long."""
    if value is None:
        return figures.NOTHING
    lines = list_json(value)
    note = format_html('<p class="listing-note">{}</p>', "Only the beginning is shown.") if lines.is_cut else ""
    return format_html('<div class="code-block">{}{}</div>', toolflow.listing(lines), note)
