"""The nested parts of the flow editor: steps, and their audits, grouped by the question that each field answers."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from nested_admin.nested import NestedStackedInline

from flows.admin.formsets import AuditFormSet, StepFormSet
from flows.engine.spec import MAX_AUDITS, MAX_STEPS
from flows.forms import AuditForm, StepForm
from flows.models import AuditRule, StepDefinition


class _PartInline(NestedStackedInline):  # type: ignore[misc]  # nested_admin ships no types
    """Rows that are part of a flow: whoever may change flows may change them."""

    sortable_field_name = "position"
    extra = 0
    fieldset_template = "admin/flows/flow/fieldset.html"
    _formset_class: Any = None

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """The class of the formset; no more forms are built than may be saved, whatever was posted.

        An inline lives as long as its request. All of its formsets are of one class: making one for each step takes
        longer than filling them.
        """
        limits = {"validate_max": True, "absolute_max": self.max_num + 10}
        if kwargs:
            return super().get_formset(request, obj, **limits, **kwargs)
        if self._formset_class is None:
            self._formset_class = super().get_formset(request, obj, **limits)
        return self._formset_class

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may change flows."""
        return request.user.has_perm("flows.change_flow")

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may see flows."""
        return request.user.has_perm("flows.view_flow") or self.has_change_permission(request, obj)


class AuditInline(_PartInline):
    """The audits of a step."""

    model = AuditRule
    form = AuditForm
    formset = AuditFormSet
    max_num = MAX_AUDITS
    template = "admin/flows/flow/audits.html"
    fieldsets = [
        (None, {"fields": ["position", ("name", "severity", "fail_at"), "for_each", "rule"]}),
        (
            "Message, suggestions and path",
            {"fields": ["message_template", "message", "suggestions", "path"], "classes": ["collapse"]},
        ),
    ]


class StepInline(_PartInline):
    """The steps of a flow."""

    model = StepDefinition
    form = StepForm
    formset = StepFormSet
    max_num = MAX_STEPS
    inlines = [AuditInline]
    template = "admin/flows/flow/steps.html"
    fieldsets = [
        (None, {"fields": ["position", ("name", "tool_name")]}),
        ("Local step", {"fields": ["compute"], "classes": ["collapse"]}),
        (
            "What does the model see?",
            {
                "fields": [
                    "system_message",
                    "description",
                    "input_expression",
                    ("include_results", "issue_severity_filter"),
                ],
                "classes": ["for-model"],
            },
        ),
        (
            "Model and input sanitizer",
            {
                "fields": [
                    ("model", "temperature", "max_tokens"),
                    ("reasoning_effort", "service_tier"),
                    "input_sanitizer",
                ],
                "classes": ["collapse", "for-model"],
            },
        ),
        ("What must the model return?", {"fields": ["output_schema"]}),
        ("Python type and output sanitizer", {"fields": ["output_type", "output_sanitizer"], "classes": ["collapse"]}),
        ("When does it pass?", {"fields": [], "classes": ["with-audits"]}),
        ("Custom pass rule", {"fields": ["pass_expression"], "classes": ["collapse"]}),
        ("What if not?", {"fields": [("max_retries", "retry_window", "time_limit"), "stop_on_failure"]}),
        ("Failure message", {"fields": ["failure_reason_expression"], "classes": ["collapse"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[StepDefinition]:
        """The steps with their audits, in two queries."""
        steps: QuerySet[StepDefinition] = super().get_queryset(request)
        return steps.prefetch_related("audits")
