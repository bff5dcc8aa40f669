"""Runs in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html

from flows.engine.issues import Severity
from runs.admin.attempt_admin import (
    ATTEMPT_DOCUMENTS,
    RUN_DOCUMENTS,
    show_cost,
    show_issue_counts,
    show_outcome,
    show_tokens,
)
from runs.admin.history_admin import HistoryAdmin, SeverityFilter, show_json
from runs.models import Attempt, Issue, Run
from runs.pages import figures
from runs.pages.run_page import run_issue_counts, run_state
from runs.templatetags.toolflow import issue_counts, moment, state


class RunSeverityFilter(SeverityFilter):
    """Runs with an issue that reaches the severity."""

    title = "severity of an issue"

    def narrow(self, rows: QuerySet[Any], severity: Severity) -> QuerySet[Any]:
        """By the totals that each run keeps."""
        condition = Q()
        for other in Severity:
            if other.at_least(severity):
                condition |= Q(**{f"issues_{other.value}__gt": 0})
        return rows.filter(condition)


class RunAdmin(HistoryAdmin):
    """Runs, each with its attempts."""

    list_display = (
        "__str__", "shown_state", "version_number", "shown_created_at", "issues", "attempt_count", "tokens",
        "shown_cost", "started_by",
    )  # fmt: skip
    list_filter = ("status", RunSeverityFilter, "flow", "end_reason", "created_at")
    list_select_related = ("flow", "version", "started_by")
    big_fields = (*RUN_DOCUMENTS, "version__spec")
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "page", "flow", "version", "shown_state", "end_reason", "end_sentence", "issues", "tokens",
                    "shown_cost", "started_by", "answered_by",
                ]
            },
        ),
        ("Attempts", {"fields": ["attempts"]}),
        ("Input", {"fields": ["shown_input"]}),
        (
            "Times and queue",
            {
                "fields": [
                    "shown_created_at", "shown_started_at", "shown_ended_at", "priority", "token_budget",
                    "shown_cost_budget", "time_limit", "shown_deadline_at", "waiting_for", "crashes", "epoch", "owner",
                    "shown_model_settings",
                ],
                "classes": ["collapse"],
            },
        ),
    ]  # fmt: skip

    class Media:
        css = {"all": ["toolflow/css/listing.css", "toolflow/admin/history.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Runs with what their columns and pages name."""
        return super().get_queryset(request).select_related("flow", "version", "started_by")

    @admin.display(description="Run page")
    def page(self, run: Run) -> str:
        """The page that shows the run best."""
        return format_html('<a href="{}">Run {}</a>', reverse("runs:page", args=[run.pk]), run.pk)

    @admin.display(description="Status")
    def shown_state(self, run: Run) -> str:
        """Icon and word."""
        return state(run_state(run))

    @admin.display(description="Version")
    def version_number(self, run: Run) -> int:
        """The number of the version that it is pinned to."""
        return run.version.number

    @admin.display(description="Created")
    def shown_created_at(self, run: Run) -> str:
        """When it was submitted."""
        return moment(run.created_at)

    @admin.display(description="Started")
    def shown_started_at(self, run: Run) -> str:
        """When a worker took it first."""
        return moment(run.started_at)

    @admin.display(description="Ended")
    def shown_ended_at(self, run: Run) -> str:
        """When it ended."""
        return moment(run.ended_at)

    @admin.display(description="Deadline")
    def shown_deadline_at(self, run: Run) -> str:
        """When it has to have ended."""
        return moment(run.deadline_at)

    @admin.display(description="Cost budget")
    def shown_cost_budget(self, run: Run) -> str:
        """In US dollars."""
        return figures.NOTHING if run.cost_budget is None else figures.format_budget(run.cost_budget)

    @admin.display(description="Issues")
    def issues(self, run: Run) -> str:
        """Of all attempts, by severity."""
        return issue_counts(run_issue_counts(run))

    @admin.display(description="Tokens")
    def tokens(self, run: Run) -> str:
        """Of all attempts."""
        return figures.format_count(run.total_tokens)

    @admin.display(description="Cost")
    def shown_cost(self, run: Run) -> str:
        """In US dollars."""
        return figures.format_cost(run.cost, run.unpriced_count)

    @admin.display(description="Answered by")
    def answered_by(self, run: Run) -> str:
        """Who answers the calls."""
        return "The simulated model: nothing is billed" if run.is_simulated else "The provider"

    @admin.display(description="Input")
    def shown_input(self, run: Run) -> str:
        """What it was started with."""
        return show_json(run.input)

    @admin.display(description="Model settings")
    def shown_model_settings(self, run: Run) -> str:
        """What calls fall back to."""
        return show_json(run.model_settings)

    @admin.display(description="Attempts")
    def attempts(self, run: Run) -> str:
        """A row for each attempt, step by step."""
        issues = Issue.objects.only("attempt_id", "severity")
        rows = (
            Attempt.objects.filter(step__run=run)
            .select_related("step", "usage")
            .defer(*ATTEMPT_DOCUMENTS)
            .prefetch_related(Prefetch("issues", queryset=issues))
            .order_by("step__index", "number")
        )
        lines = []
        for row in rows:
            row.step.run = run
            lines.append((row, show_outcome(row), show_issue_counts(row), show_tokens(row), show_cost(row)))
        return render_to_string("admin/runs/run/attempts.html", {"lines": lines})
