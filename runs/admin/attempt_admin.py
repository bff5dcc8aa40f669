"""Attempts and their issues in the admin."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import Truncator

from flows.engine.issues import Severity
from flows.engine.spec import StepSpec
from runs.admin.history_admin import HistoryAdmin, SeverityFilter, show_json
from runs.models import Attempt, Issue, TokenUsage
from runs.pages import figures
from runs.pages.attempt_view import view_attempt
from runs.pages.badges import SEVERITIES
from runs.pages.json_lines import show_invisible
from runs.templatetags import toolflow

ATTEMPT_DOCUMENTS = ("input", "output", "raw_output", "request", "error", "plugins")
RUN_DOCUMENTS = ("input", "model_settings", "end_sentence", "flow__input_schema", "flow__description")


def link_attempt(attempt: Attempt) -> str:
    """A link to the attempt on the page of its run: ``Run 12, step 2, attempt 1``."""
    step = attempt.step
    address = f"{reverse('runs:page', args=[step.run_id])}#s{step.index}a{attempt.number}"
    return format_html('<a href="{}">Run {}, step {}, attempt {}</a>', address, step.run_id, step.index, attempt.number)


def show_outcome(attempt: Attempt) -> str:
    """Icon and word; an attempt without an outcome is under way, unless its run ended without it."""
    return toolflow.state(attempt.outcome or ("interrupted" if attempt.step.run.has_ended else "running"))


def show_issue_counts(attempt: Attempt) -> str:
    """The attempt's own issues by severity. They should be prefetched."""
    counts = Counter(issue.severity for issue in attempt.issues.all())
    return toolflow.issue_counts((name, counts[name]) for name in SEVERITIES)


def show_tokens(attempt: Attempt) -> str:
    """Tokens in and out; a dash where there were none, or none were reported."""
    usage: TokenUsage | None = getattr(attempt, "usage", None)
    if usage is None or not usage.reported or not usage.total:
        return figures.NOTHING
    return f"{figures.format_count(usage.prompt)} in, {figures.format_count(usage.completion)} out"


def show_cost(attempt: Attempt) -> str:
    """In US dollars."""
    usage: TokenUsage | None = getattr(attempt, "usage", None)
    return figures.format_cost(usage.cost, usage.unpriced) if usage else figures.NOTHING


class AttemptSeverityFilter(SeverityFilter):
    """Attempts that have an issue that reaches the severity."""

    title = "severity of an issue"

    def narrow(self, rows: QuerySet[Any], severity: Severity) -> QuerySet[Any]:
        """By the attempt's own issues."""
        return rows.filter(Exists(Issue.objects.at_least(severity).filter(attempt=OuterRef("pk"))))


class IssueSeverityFilter(SeverityFilter):
    """Issues that reach the severity."""

    def narrow(self, rows: QuerySet[Any], severity: Severity) -> QuerySet[Any]:
        """By their own severity."""
        return rows.at_least(severity)  # type: ignore[attr-defined, no-any-return]  # an IssueQuerySet


class AttemptAdmin(HistoryAdmin):
    """Attempts: the output of each beside its own issues."""

    list_display = ("__str__", "run", "flow", "outcome_badge", "issue_counts", "tokens", "cost", "model", "began")
    list_filter = ("outcome", AttemptSeverityFilter, ("step__run__flow", admin.RelatedFieldListFilter), "started_at")
    list_select_related = ("step__run__flow", "usage")
    big_fields = (*ATTEMPT_DOCUMENTS, "failure_reason", *(f"step__run__{name}" for name in RUN_DOCUMENTS))
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "run", "outcome_badge", "failure_reason", "tokens", "cost", "model", "finish_reason",
                    "response_id", "began", "ended",
                ]
            },
        ),
        ("Output and its issues", {"fields": ["output_and_issues"]}),
        ("Input of the step", {"fields": ["shown_input"], "classes": ["collapse"]}),
        ("Request", {"fields": ["shown_request"], "classes": ["collapse"]}),
        (
            "Raw output, error, plug-ins",
            {"fields": ["shown_raw_output", "shown_error", "shown_plugins"], "classes": ["collapse"]},
        ),
    ]  # fmt: skip

    class Media:
        css = {"all": ["toolflow/css/listing.css", "toolflow/css/attempts.css", "toolflow/admin/history.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        """Attempts with step, run and usage, and with the severities of their issues."""
        issues = Issue.objects.only("attempt_id", "severity")
        attempts = super().get_queryset(request).select_related("step__run__flow", "usage")
        return attempts.prefetch_related(Prefetch("issues", queryset=issues))

    @admin.display(description="Run page")
    def run(self, attempt: Attempt) -> str:
        """Where the attempt stands among the others."""
        return link_attempt(attempt)

    @admin.display(description="Flow")
    def flow(self, attempt: Attempt) -> str:
        """The flow of the run."""
        return str(attempt.step.run.flow)

    @admin.display(description="Outcome")
    def outcome_badge(self, attempt: Attempt) -> str:
        """Icon and word."""
        return show_outcome(attempt)

    @admin.display(description="Issues")
    def issue_counts(self, attempt: Attempt) -> str:
        """By severity."""
        return show_issue_counts(attempt)

    @admin.display(description="Tokens")
    def tokens(self, attempt: Attempt) -> str:
        """In and out."""
        return show_tokens(attempt)

    @admin.display(description="Cost")
    def cost(self, attempt: Attempt) -> str:
        """In US dollars."""
        return show_cost(attempt)

    @admin.display(description="Began")
    def began(self, attempt: Attempt) -> str:
        """When it began."""
        return toolflow.moment(attempt.started_at)

    @admin.display(description="Ended")
    def ended(self, attempt: Attempt) -> str:
        """When it ended."""
        return toolflow.moment(attempt.ended_at)

    @admin.display(description="Output and its issues")
    def output_and_issues(self, attempt: Attempt) -> str:
        """The output with the lines marked that its issues point at, and the issues beside it."""
        issues = list(Issue.objects.filter(attempt=attempt))
        view = view_attempt(attempt, issues, StepSpec(name=attempt.step.name), True, attempt.step.run)
        return render_to_string("admin/runs/attempt/output.html", {"attempt": view})

    @admin.display(description="Input")
    def shown_input(self, attempt: Attempt) -> str:
        """What the step was given."""
        return show_json(attempt.input)

    @admin.display(description="Request")
    def shown_request(self, attempt: Attempt) -> str:
        """The exact body that the model was sent."""
        return show_json(attempt.request)

    @admin.display(description="Raw output")
    def shown_raw_output(self, attempt: Attempt) -> str:
        """What came back before the sanitizer, where it differs."""
        return show_json(attempt.raw_output)

    @admin.display(description="Error")
    def shown_error(self, attempt: Attempt) -> str:
        """What kept an answer from coming."""
        return show_json(attempt.error)

    @admin.display(description="Plug-ins")
    def shown_plugins(self, attempt: Attempt) -> str:
        """The Python code that had a say, with its fingerprints."""
        return show_json(attempt.plugins or None)


class IssueAdmin(HistoryAdmin):
    """Issues of all attempts."""

    list_display = ("summary", "severity_badge", "code", "audit", "path", "run", "flow", "began")
    list_filter = (
        IssueSeverityFilter,
        ("attempt__step__run__flow", admin.RelatedFieldListFilter),
        "attempt__outcome",
        "attempt__started_at",
    )
    list_select_related = ("attempt__step__run__flow",)
    search_fields = ("^code", "^audit")
    search_help_text = "Beginning of a code or of the name of an audit"
    big_fields = (
        "context", "suggestions", "added_fields",
        *(f"attempt__{name}" for name in (*ATTEMPT_DOCUMENTS, "failure_reason")),
        *(f"attempt__step__run__{name}" for name in RUN_DOCUMENTS),
    )  # fmt: skip
    fields = (
        "severity_badge", "code", "audit", "shown_description", "path", "shown_suggestions", "run", "attempt",
        "shown_context", "shown_added_fields",
    )  # fmt: skip

    class Media:
        css = {"all": ["toolflow/css/listing.css", "toolflow/admin/history.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Issue]:
        """Issues with their attempt, step and run."""
        return super().get_queryset(request).select_related("attempt__step__run__flow")

    @admin.display(description="Issue")
    def summary(self, issue: Issue) -> str:
        """The beginning of the description."""
        return Truncator(show_invisible(issue.description)).chars(90) or issue.code

    @admin.display(description="Severity")
    def severity_badge(self, issue: Issue) -> str:
        """Icon and word."""
        badge = SEVERITIES[issue.severity]
        return format_html('<span class="state tone-{}">{}{}</span>', badge.tone, toolflow.icon(badge.icon), badge.word)

    @admin.display(description="Run page")
    def run(self, issue: Issue) -> str:
        """The attempt that it is about, on the page of its run."""
        return link_attempt(issue.attempt)

    @admin.display(description="Flow")
    def flow(self, issue: Issue) -> str:
        """The flow of the run."""
        return str(issue.attempt.step.run.flow)

    @admin.display(description="Attempt began")
    def began(self, issue: Issue) -> str:
        """When the attempt began."""
        return toolflow.moment(issue.attempt.started_at)

    @admin.display(description="Description")
    def shown_description(self, issue: Issue) -> str:
        """What is wrong."""
        return show_invisible(issue.description)

    @admin.display(description="Suggestions")
    def shown_suggestions(self, issue: Issue) -> str:
        """What would be right."""
        return show_json(issue.suggestions or None)

    @admin.display(description="Context")
    def shown_context(self, issue: Issue) -> str:
        """What the audit looked at."""
        return show_json(issue.context or None)

    @admin.display(description="Added fields")
    def shown_added_fields(self, issue: Issue) -> str:
        """What the audit added of its own."""
        return show_json(issue.added_fields or None)
