"""Steps of runs in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest

from runs.admin.attempt_table import render_attempts
from runs.admin.cells import link_run, list_documents, show_flow, show_issue_counts, show_outcome
from runs.admin.filters import StepFilters
from runs.admin.history_admin import HistoryAdmin
from runs.models import Attempt, Issue, Step
from runs.pages import figures
from runs.pages.json_lines import show_invisible
from runs.templatetags.toolflow import moment


class StepAdmin(HistoryAdmin):
    """Steps of all runs, each with its attempts."""

    filters = StepFilters
    list_display = ("step", "run_page", "flow", "outcome", "attempt_count", "issue_counts", "created")
    big_fields = list_documents("run__")
    fieldsets = [
        (None, {"fields": ["run_page", "flow", "outcome", "issue_counts", "created"], "classes": ["strip"]}),
        ("Attempts", {"fields": ["attempts"], "classes": ["documents"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Step]:
        """Steps with their run, and with what their attempts came to."""
        issues = Prefetch("issues", queryset=Issue.objects.only("attempt_id", "severity"))
        attempts = Attempt.objects.only("step_id", "number", "outcome").order_by("number").prefetch_related(issues)
        steps = super().get_queryset(request).select_related("run__flow", "run__version")
        return steps.prefetch_related(Prefetch("attempts", queryset=attempts))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of a step."""
        step: Step | None = context["original"]
        if step is not None:
            context["title"] = f"{step.run}, step {step.index} “{show_invisible(step.name)}”"
            context["subtitle"] = None
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="Step")
    def step(self, step: Step) -> str:
        """Its number and name."""
        return f"{step.index}. {show_invisible(step.name)}"

    @admin.display(description="Run page")
    def run_page(self, step: Step) -> str:
        """The step among the others."""
        return link_run(step.run, f"#s{step.index}")

    @admin.display(description="Flow")
    def flow(self, step: Step) -> str:
        """Flow and version of the run."""
        return show_flow(step.run)

    @admin.display(description="Last outcome")
    def outcome(self, step: Step) -> str:
        """That of its last attempt."""
        attempts = list(step.attempts.all())
        return show_outcome(attempts[-1], step.run) if attempts else figures.NOTHING

    @admin.display(description="Attempts")
    def attempt_count(self, step: Step) -> int:
        """How many it took."""
        return len(step.attempts.all())

    @admin.display(description="Issues")
    def issue_counts(self, step: Step) -> str:
        """Of all its attempts, by severity."""
        return show_issue_counts(issue for attempt in step.attempts.all() for issue in attempt.issues.all())

    @admin.display(description="Run created")
    def created(self, step: Step) -> str:
        """When its run was submitted."""
        return moment(step.run.created_at)

    @admin.display(description="Attempts")
    def attempts(self, step: Step) -> str:
        """A row for each of its attempts."""
        return render_attempts(Attempt.objects.filter(step=step), step.run)
