"""Issues in the admin: what audits found, over all attempts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.text import Truncator

from runs.admin.cells import (
    ATTEMPT_DOCUMENTS,
    link_attempt,
    link_attempt_on_run,
    list_documents,
    show_flow,
    show_json,
    show_outcome,
    show_severity,
)
from runs.admin.filters import IssueFilters
from runs.admin.history_admin import HistoryAdmin
from runs.models import Issue
from runs.pages import figures
from runs.pages.issue_links import anchor_issue
from runs.pages.issue_pages import MOST_ISSUES
from runs.pages.json_lines import show_invisible
from runs.pages.run_page import run_issue_counts
from runs.templatetags.toolflow import moment


class IssueAdmin(HistoryAdmin):
    """Issues of all attempts."""

    filters = IssueFilters
    list_display = ("summary", "severity_badge", "code_link", "audit_link", "attempt_link", "run", "flow", "began")
    big_fields = (
        "context", "suggestions", "added_fields",
        *(f"attempt__{name}" for name in ATTEMPT_DOCUMENTS), *list_documents("attempt__step__run__"),
    )  # fmt: skip
    optional_fields = {
        "shown_suggestions": "suggestions",
        "shown_context": "context",
        "shown_added_fields": "added_fields",
    }
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "severity_badge", "code_link", "audit_link", "attempt_link", "run", "flow", "outcome", "began",
                ],
                "classes": ["strip"],
            },
        ),
        (
            "What was found",
            {
                "fields": [
                    "shown_description", "shown_path", "shown_suggestions", "shown_context", "shown_added_fields",
                ],
                "classes": ["documents"],
            },
        ),
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Issue]:
        """Issues with their attempt, step and run."""
        issues = super().get_queryset(request)
        return issues.select_related("attempt__step__run__flow", "attempt__step__run__version")

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of an issue."""
        issue: Issue | None = context["original"]
        if issue is not None:
            step = issue.attempt.step
            name = show_invisible(issue.audit or issue.code)
            context["title"] = f"{name} in {step.run}, step {step.index}, attempt {issue.attempt.number}"
            context["subtitle"] = None
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="Issue")
    def summary(self, issue: Issue) -> str:
        """The beginning of the description."""
        return Truncator(show_invisible(issue.description)).chars(70) or issue.code

    @admin.display(description="Severity")
    def severity_badge(self, issue: Issue) -> str:
        """Icon and word."""
        return show_severity(issue)

    @admin.display(description="Code")
    def code_link(self, issue: Issue) -> str:
        """Leads to all issues of the same code."""
        return _link_alike("code", issue.code)

    @admin.display(description="Audit")
    def audit_link(self, issue: Issue) -> str:
        """Leads to all issues of the same audit."""
        return _link_alike("audit", issue.audit)

    @admin.display(description="Output and issues")
    def attempt_link(self, issue: Issue) -> str:
        """Leads to the issue beside the output that it is about."""
        attempt, run = issue.attempt, issue.attempt.step.run
        step, number = attempt.step.index, attempt.number
        if sum(count for _, count in run_issue_counts(run)) > MOST_ISSUES:
            # The page here shows only the gravest; that of the run knows where this one stands.
            address = reverse("runs:attempt", args=[run.pk, step, number])
            return format_html('<a href="{}?issue={}">Step {}, attempt {}</a>', address, issue.position, step, number)
        return link_attempt(attempt, f"#{anchor_issue(step, number, issue.position)}")

    @admin.display(description="Run page")
    def run(self, issue: Issue) -> str:
        """The attempt that it is about, on the page of its run."""
        return link_attempt_on_run(issue.attempt)

    @admin.display(description="Flow")
    def flow(self, issue: Issue) -> str:
        """Flow and version of the run."""
        return show_flow(issue.attempt.step.run)

    @admin.display(description="Outcome of the attempt")
    def outcome(self, issue: Issue) -> str:
        """Icon and word."""
        return show_outcome(issue.attempt, issue.attempt.step.run)

    @admin.display(description="Attempt began")
    def began(self, issue: Issue) -> str:
        """When the attempt began."""
        return moment(issue.attempt.started_at)

    @admin.display(description="Description")
    def shown_description(self, issue: Issue) -> str:
        """What is wrong."""
        return show_invisible(issue.description)

    @admin.display(description="Place in the output")
    def shown_path(self, issue: Issue) -> str:
        """A JSON pointer; the empty one is the whole output."""
        return figures.NOTHING if issue.path is None else show_invisible(issue.path) or "The whole output"

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


def _link_alike(name: str, value: str) -> str:
    if not value:
        return figures.NOTHING
    address = f"{reverse('admin:runs_issue_changelist')}?{urlencode({name: value})}"
    return format_html('<a href="{}">{}</a>', address, show_invisible(value))
