"""Token usage in the admin: what each attempt took, and what it cost."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from runs.admin.cells import ATTEMPT_DOCUMENTS, link_attempt, link_attempt_on_run, list_documents, show_cost, show_flow
from runs.admin.filters import UsageFilters
from runs.admin.history_admin import HistoryAdmin
from runs.models import TokenUsage
from runs.pages import figures
from runs.pages.json_lines import show_invisible
from runs.templatetags.toolflow import moment

_NUMBERS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "total_tokens", "shown_cost")


class TokenUsageAdmin(HistoryAdmin):
    """Token usage of all attempts."""

    filters = UsageFilters
    list_display = ("number", "run", "flow", "answered", *_NUMBERS, "reported", "began")
    big_fields = (*(f"attempt__{name}" for name in ATTEMPT_DOCUMENTS), *list_documents("attempt__step__run__"))
    fieldsets = [
        (
            None,
            {
                "fields": ["attempt_link", "run", "flow", "answered", *_NUMBERS, "reported", "began"],
                "classes": ["strip"],
            },
        )
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[TokenUsage]:
        """Usages with their attempt, step and run."""
        usages = super().get_queryset(request)
        return usages.select_related("attempt__step__run__flow", "attempt__step__run__version")

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of one usage."""
        usage: TokenUsage | None = context["original"]
        if usage is not None:
            step = usage.attempt.step
            context["title"] = f"Tokens of {step.run}, step {step.index}, attempt {usage.attempt.number}"
            context["subtitle"] = None
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="Attempt")
    def number(self, usage: TokenUsage) -> str:
        """The place of the attempt in its run."""
        return f"Step {usage.attempt.step.index}, attempt {usage.attempt.number}"

    @admin.display(description="Attempt")
    def attempt_link(self, usage: TokenUsage) -> SafeString:
        """The attempt that used them."""
        return link_attempt(usage.attempt)

    @admin.display(description="Run page")
    def run(self, usage: TokenUsage) -> SafeString:
        """The attempt on the page of its run."""
        return link_attempt_on_run(usage.attempt)

    @admin.display(description="Flow")
    def flow(self, usage: TokenUsage) -> str:
        """Flow and version of the run."""
        return show_flow(usage.attempt.step.run)

    @admin.display(description="Model")
    def answered(self, usage: TokenUsage) -> str:
        """As the provider names it."""
        return show_invisible(usage.attempt.model) or figures.NOTHING

    @admin.display(description="Prompt")
    def prompt_tokens(self, usage: TokenUsage) -> str:
        """Tokens in."""
        return _show_count(usage, usage.prompt)

    @admin.display(description="Cached")
    def cached_tokens(self, usage: TokenUsage) -> str:
        """Tokens in that the provider had in its cache."""
        return _show_count(usage, usage.cached)

    @admin.display(description="Completion")
    def completion_tokens(self, usage: TokenUsage) -> str:
        """Tokens out."""
        return _show_count(usage, usage.completion)

    @admin.display(description="Reasoning")
    def reasoning_tokens(self, usage: TokenUsage) -> str:
        """Tokens out that the model thought with."""
        return _show_count(usage, usage.reasoning)

    @admin.display(description="Total")
    def total_tokens(self, usage: TokenUsage) -> str:
        """Tokens in and out."""
        return _show_count(usage, usage.total)

    @admin.display(description="Cost")
    def shown_cost(self, usage: TokenUsage) -> str:
        """In US dollars."""
        return show_cost(usage)

    @admin.display(description="Attempt began")
    def began(self, usage: TokenUsage) -> str:
        """When the attempt began."""
        return moment(usage.attempt.started_at)


def _show_count(usage: TokenUsage, count: int) -> str:
    return figures.format_count(count) if usage.reported else figures.NOTHING
