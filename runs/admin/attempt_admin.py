"""Attempts in the admin: the output of each beside its own issues."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string

from flows.engine.spec import StepSpec
from runs.admin.cells import (
    ATTEMPT_DOCUMENTS,
    find_usage,
    link_attempt_on_run,
    list_documents,
    show_cost,
    show_flow,
    show_issue_counts,
    show_json,
    show_outcome,
    show_tokens,
)
from runs.admin.filters import AttemptFilters
from runs.admin.history_admin import HistoryAdmin
from runs.models import Attempt, Issue
from runs.pages import figures
from runs.pages.attempt_view import view_attempt
from runs.pages.json_lines import show_invisible
from runs.templatetags.toolflow import moment

FACTS = ("run", "flow", "outcome_badge", "tokens", "cost", "began", "duration", "reason")


class AttemptAdmin(HistoryAdmin):
    """Attempts of all runs."""

    filters = AttemptFilters
    list_display = ("attempt", "run", "flow", "outcome_badge", "issue_counts", "tokens", "cost", "answered", "began")
    big_fields = (*ATTEMPT_DOCUMENTS, "sent__body", *list_documents("step__run__"))
    optional_fields = {
        "reason": "failure_reason",
        "shown_request": "request",
        "shown_raw_output": "raw_output",
        "shown_error": "error",
        "finished": "finish_reason",
        "response": "response_id",
        "shown_plugins": "plugins",
    }
    fieldsets = [
        (None, {"fields": FACTS, "classes": ["strip"]}),
        ("Output and its issues", {"fields": ["output_and_issues"], "classes": ["documents"]}),
        ("Input of the step", {"fields": ["shown_input"], "classes": ["documents", "collapse"]}),
        ("What the model was sent", {"fields": ["shown_request"], "classes": ["documents", "collapse"]}),
        (
            "Raw output, error, answer, plug-ins",
            {
                "fields": ["shown_raw_output", "shown_error", "answered", "finished", "response", "shown_plugins"],
                "classes": ["documents", "collapse"],
            },
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        """Attempts with step, run and usage, and with the severities of their issues."""
        issues = Issue.objects.only("attempt_id", "severity")
        attempts = (
            super().get_queryset(request).select_related("step__run__flow", "step__run__version", "usage", "sent")
        )
        return attempts.prefetch_related(Prefetch("issues", queryset=issues))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of an attempt, between the one before and the one after it in the run."""
        attempt: Attempt | None = context["original"]
        if attempt is not None:
            step, run = attempt.step, attempt.step.run
            name = show_invisible(step.name)
            context["title"] = f"{run.flow} #{run.pk}, step {step.index} “{name}”, attempt {attempt.number}"
            context["subtitle"] = None
            context["earlier"], context["later"] = _find_neighbours(attempt)
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="Attempt")
    def attempt(self, attempt: Attempt) -> str:
        """Its place in the run."""
        return f"{attempt.step.index}. {show_invisible(attempt.step.name)}, attempt {attempt.number}"

    @admin.display(description="Run page")
    def run(self, attempt: Attempt) -> str:
        """Where the attempt stands among the others."""
        return link_attempt_on_run(attempt)

    @admin.display(description="Flow")
    def flow(self, attempt: Attempt) -> str:
        """Flow and version of the run."""
        return show_flow(attempt.step.run)

    @admin.display(description="Outcome")
    def outcome_badge(self, attempt: Attempt) -> str:
        """Icon and word."""
        return show_outcome(attempt, attempt.step.run)

    @admin.display(description="Why it did not pass")
    def reason(self, attempt: Attempt) -> str:
        """In the words of the flow."""
        return show_invisible(attempt.failure_reason) or figures.NOTHING

    @admin.display(description="Issues")
    def issue_counts(self, attempt: Attempt) -> str:
        """By severity."""
        return show_issue_counts(attempt.issues.all())

    @admin.display(description="Tokens")
    def tokens(self, attempt: Attempt) -> str:
        """In and out."""
        return show_tokens(find_usage(attempt))

    @admin.display(description="Cost")
    def cost(self, attempt: Attempt) -> str:
        """In US dollars."""
        return show_cost(find_usage(attempt))

    @admin.display(description="Model")
    def answered(self, attempt: Attempt) -> str:
        """As the provider names it."""
        return show_invisible(attempt.model) or figures.NOTHING

    @admin.display(description="Finish reason")
    def finished(self, attempt: Attempt) -> str:
        """As the provider gives it."""
        return show_invisible(attempt.finish_reason) or figures.NOTHING

    @admin.display(description="Response")
    def response(self, attempt: Attempt) -> str:
        """The provider's number for it."""
        return show_invisible(attempt.response_id) or figures.NOTHING

    @admin.display(description="Began")
    def began(self, attempt: Attempt) -> str:
        """When it began."""
        return moment(attempt.started_at)

    @admin.display(description="Duration")
    def duration(self, attempt: Attempt) -> str:
        """From its beginning to its end."""
        if attempt.started_at is None or attempt.ended_at is None:
            return figures.NOTHING
        return figures.format_duration((attempt.ended_at - attempt.started_at).total_seconds())

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


def _find_neighbours(attempt: Attempt) -> tuple[Attempt | None, Attempt | None]:
    """The attempts right before and after one in its run."""
    others = Attempt.objects.filter(step__run=attempt.step.run_id).select_related("step")
    ordered = list(others.only("number", "step__index").order_by("step__index", "number"))
    place = next(place for place, other in enumerate(ordered) if other.pk == attempt.pk)
    return ordered[place - 1] if place else None, ordered[place + 1] if place + 1 < len(ordered) else None
