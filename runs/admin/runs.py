"""Runs, attempts and issues in the admin: outputs beside their issues, to read and to filter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import smart_split

from runs import formatting
from runs.admin.filters import AttemptFilters, HistoryFilters, IssueRowFilters, show_filters
from runs.admin.history import HistoryAdmin, column, document, section
from runs.history.issues import address_attempt
from runs.history.texts import show_invisible
from runs.models import Attempt, Issue, Run
from runs.pages.attempts import count_severities, find_state, view_attempt
from runs.pages.badges import STATES, IssueCounts, count_run_issues, find_run_state

RUN_DOCUMENTS = (
    "input", "model_settings", "end_sentence", "flow__description", "version__spec",
)  # fmt: skip
ATTEMPT_DOCUMENTS = ("input", "output", "raw_output", "error", "plugins", "failure_reason")
ATTEMPT_FILTERS = ("severity", "audit", "code", "outcome", "flow", "version", "from", "to")
MAX_SEARCHED = 10_000
"""The newest issues, in which the search box searches."""
MAX_SEARCH_WORDS = 8
SEVERITIES_ONLY = Prefetch("issues", Issue.objects.only("attempt_id", "severity"))

# ---------------------------------------------------------------------------------------------------------------------
# Runs


def _link_run(run: Run, anchor: str = "") -> SafeString:
    return format_html('<a href="{}{}">Run {}</a>', reverse("runs:page", args=[run.pk]), anchor, run.pk)


def _show_state(name: str) -> SafeString:
    return render_to_string("admin/runs/state.html", {"badge": STATES[name]})


def _show_counts(counts: IssueCounts) -> SafeString:
    return render_to_string("admin/runs/counts.html", {"counts": counts})


def _name_flow(run: Run) -> str:
    return f"{run.flow} v{run.version.number}"


def _list_attempts(run: Run) -> SafeString:
    """A row for each attempt, step by step. Two queries."""
    rows = Attempt.objects.filter(step__run=run).select_related("step", "usage").prefetch_related(SEVERITIES_ONLY)
    lines = []
    for attempt in rows.defer(*ATTEMPT_DOCUMENTS).order_by("step__index", "number"):
        attempt.step.run = run
        lines.append((attempt, _show_outcome(attempt), _count_issues(attempt), _show_cost(attempt)))
    return render_to_string("admin/runs/attempts.html", {"lines": lines})


class RunAdmin(HistoryAdmin):
    """Runs, each with its attempts."""

    _facts = (
        column("Run page", _link_run),
        column("Status", lambda run: _show_state(find_run_state(run))),
        column("Issues", lambda run: _show_counts(count_run_issues(run))),
        column("Tokens", "total_tokens"),
        column("Cost", lambda run: formatting.format_cost(run.cost, run.unpriced_count)),
        column("Started by", "started_by"),
    )
    list_display = ("__str__", column("Version", "version.number"), *_facts, column("Created", "created_at"))
    filters = HistoryFilters
    list_filter = show_filters("status", "severity", "reason", "flow", "version", "from", "to")
    list_select_related = ("flow", "version", "started_by")
    ordering = ("-created_at", "-pk")
    documents = RUN_DOCUMENTS
    fieldsets = (
        section(
            None, *_facts, "flow", "version", "end_reason", "is_simulated", column("End", "end_sentence"),
            classes=["strip"],
        ),
        section("Attempts", column("All attempts", _list_attempts)),
        section("Input", document("Input document", "input")),
        section(
            "Times and queue",
            column("Created", "created_at"), column("Started", "started_at"), column("Ended", "ended_at"),
            column("Deadline", "deadline_at"), "priority", "token_budget", "cost_budget", "time_limit", "waiting_for",
            "crashes", "epoch", "owner",
            classes=["strip", "collapse"],
        ),
        section("Model settings", document("Settings", "model_settings"), classes=["documents", "collapse"]),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Attempts


def _show_outcome(attempt: Attempt) -> SafeString:
    """An attempt without an outcome is under way, unless its run ended without it."""
    return _show_state(find_state(attempt, attempt.step.run))


def _count_issues(attempt: Attempt) -> SafeString:
    return _show_counts(count_severities(attempt.issues.all()))


def _show_cost(attempt: Attempt) -> str:
    usage = getattr(attempt, "usage", None)
    return formatting.format_cost(usage.cost, usage.unpriced) if usage else formatting.NOTHING


def _link_attempt(attempt: Attempt) -> SafeString:
    """A link to the attempt among the others, on the page of its run."""
    return _link_run(attempt.step.run, address_attempt(attempt.step.index, attempt.number))


def _show_beside(attempt: Attempt, issues: Sequence[Issue] = ()) -> SafeString:
    """The output with the lines marked that its issues point at, all or these, and the issues beside it."""
    issues = issues or list(Issue.objects.filter(attempt=attempt))
    view = view_attempt(attempt, issues, attempt.step.run, None)
    return render_to_string("admin/runs/attempt/output.html", {"attempt": view})


class AttemptAdmin(HistoryAdmin):
    """Attempts of all runs, each output beside its own issues."""

    _facts = (
        column("Run page", _link_attempt),
        column("Flow", lambda attempt: _name_flow(attempt.step.run)),
        column("Outcome", _show_outcome),
        column("Tokens", "usage.total"),
        column("Cost", _show_cost),
        column("Model", "model"),
        column("Started", "started_at"),
    )
    list_display = (column("Attempt", str), column("Issues", _count_issues), *_facts)
    filters = AttemptFilters
    list_filter = show_filters(*ATTEMPT_FILTERS)
    list_select_related = ("step__run__flow", "step__run__version", "usage", "sent")
    documents = (*ATTEMPT_DOCUMENTS, "sent__body", *(f"step__run__{name}" for name in RUN_DOCUMENTS))
    fieldsets = (
        section(
            None, *_facts, column("Ended", "ended_at"), column("Finish reason", "finish_reason"),
            column("Response", "response_id"), column("Failure reason", "failure_reason"), classes=["strip"],
        ),
        section("Output and its issues", column("Output and issues", _show_beside)),
        section("Input of the step", document("Input document", "input"), classes=["documents", "collapse"]),
        section("Request", document("Request body", "request"), classes=["documents", "collapse"]),
        section(
            "Raw output, error and plug-ins",
            document("Raw output", "raw_output"), document("Error", "error"), document("Plug-ins", "plugins"),
            classes=["documents", "collapse"],
        ),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        """Attempts with the severities of their issues."""
        return super().get_queryset(request).prefetch_related(SEVERITIES_ONLY)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of an attempt, with links to the ones before and after it in the run."""
        attempt: Attempt = context["original"]
        others = Attempt.objects.filter(step__run=attempt.step.run_id).select_related("step")
        ordered = [None, *others.only("number", "step__index").order_by("step__index", "number"), None]
        index = ordered.index(attempt)
        context["earlier"], context["later"] = ordered[index - 1], ordered[index + 1]
        return super().render_change_form(request, context, *args, **kwargs)


# ---------------------------------------------------------------------------------------------------------------------
# Issues


def _link_alike(name: str, value: str) -> str:
    """A link to all issues with the same value."""
    if not value:
        return formatting.NOTHING
    address = f"{reverse('admin:runs_issue_changelist')}?{urlencode({name: value})}"
    return format_html('<a href="{}">{}</a>', address, show_invisible(value))


def _link_output(issue: Issue) -> SafeString:
    """A link to the issue beside the output that it is about, however many issues that has."""
    step, number = issue.attempt.step, issue.attempt.number
    address = reverse("runs:attempt", args=[step.run_id, step.index, number])
    return format_html('<a href="{}?issue={}">Step {}, attempt {}</a>', address, issue.position, step.index, number)


def _link_admin_page(issue: Issue) -> SafeString:
    address = reverse("admin:runs_attempt_change", args=[issue.attempt_id])
    return format_html('<a href="{}">{}</a>', address, show_invisible(str(issue.attempt)))


class IssueAdmin(HistoryAdmin):
    """Issues of all attempts."""

    _facts = (
        "severity",
        column("Code", lambda issue: _link_alike("code", issue.code)),
        column("Audit", lambda issue: _link_alike("audit", issue.audit)),
        column("In the output", _link_output),
        column("Run page", lambda issue: _link_attempt(issue.attempt)),
        column("Flow", lambda issue: _name_flow(issue.attempt.step.run)),
        column("Attempt started", "attempt.started_at"),
    )
    list_display = (column("Issue", lambda issue: issue.description[:70] or issue.code), *_facts)
    filters = IssueRowFilters
    list_filter = show_filters(*ATTEMPT_FILTERS)
    list_select_related = ("attempt__step__run__flow", "attempt__step__run__version")
    documents = (
        "context", "suggestions", "added_fields", *(f"attempt__{name}" for name in ATTEMPT_DOCUMENTS),
        *(f"attempt__step__run__{name}" for name in RUN_DOCUMENTS),
    )  # fmt: skip
    fieldsets = (
        section(
            None, *_facts, column("Attempt", _link_admin_page),
            column("Outcome", lambda issue: _show_outcome(issue.attempt)), classes=["strip"],
        ),
        section(
            "Output and this issue",
            column("Output and issues", lambda issue: _show_beside(issue.attempt, [issue])),
        ),
        section(
            "All fields",
            column("Description", "description"), column("Path in the output", "path"),
            document("Suggestions", "suggestions"), document("Context", "context"),
            document("Added fields", "added_fields"),
            classes=["documents", "collapse"],
        ),
    )  # fmt: skip
    search_fields = ("description", "code", "audit")
    search_help_text = f"In messages, codes and audits of the newest {MAX_SEARCHED:,} issues."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Issue], search_term: str
    ) -> tuple[QuerySet[Issue], bool]:
        """The newest issues with each of the words; to search all of them takes the whole table."""
        words = " ".join(islice(smart_split(search_term), MAX_SEARCH_WORDS))
        if words:
            newest = Issue.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
            queryset = queryset.filter(pk__gt=newest - MAX_SEARCHED)
        return super().get_search_results(request, queryset, words)
