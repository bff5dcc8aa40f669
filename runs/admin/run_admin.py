"""Runs in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from runs.admin.attempt_table import render_attempts
from runs.admin.cells import RUN_DOCUMENTS, link_run, show_json
from runs.admin.filters import RunFilters
from runs.admin.history_admin import HistoryAdmin
from runs.models import Attempt, Run
from runs.pages import figures
from runs.pages.run_page import run_issue_counts, run_state
from runs.templatetags.toolflow import issue_counts, moment, state


class RunAdmin(HistoryAdmin):
    """Runs, each with its attempts."""

    filters = RunFilters
    list_display = (
        "__str__", "page", "shown_state", "version_number", "issues", "attempt_count", "tokens", "shown_cost",
        "starter", "shown_created_at",
    )  # fmt: skip
    big_fields = RUN_DOCUMENTS
    optional_fields = {"end_reason": "end_reason", "end_sentence": "end_sentence", "waiting_for": "waiting_for"}
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "page", "flow", "version", "shown_state", "end_reason", "issues", "tokens", "shown_cost",
                    "starter", "answered_by", "end_sentence",
                ],
                "classes": ["strip"],
            },
        ),
        ("Attempts", {"fields": ["attempts"], "classes": ["documents"]}),
        ("Input", {"fields": ["shown_input"], "classes": ["documents"]}),
        (
            "Times and queue",
            {
                "fields": [
                    "shown_created_at", "shown_started_at", "shown_ended_at", "priority", "token_budget",
                    "shown_cost_budget", "time_limit", "shown_deadline_at", "waiting_for", "crashes", "epoch", "owner",
                ],
                "classes": ["strip", "collapse"],
            },
        ),
        ("Model settings", {"fields": ["shown_model_settings"], "classes": ["documents", "collapse"]}),
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Runs with what their columns and pages name."""
        return super().get_queryset(request).select_related("flow", "version", "started_by")

    @admin.display(description="Run page")
    def page(self, run: Run) -> str:
        """The page that shows the run best."""
        return link_run(run)

    @admin.display(description="Started by")
    def starter(self, run: Run) -> str:
        """The user; a dash for nobody, and for one who is gone."""
        return run.started_by.get_username() if run.started_by else figures.NOTHING

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
        return render_attempts(Attempt.objects.filter(step__run=run), run)
