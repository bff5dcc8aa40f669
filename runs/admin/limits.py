"""Limits of the provider in the admin."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest

from flows.models import Flow, FlowVersion
from runs.limits.rules import Limit
from runs.models import RateLimit


class RateLimitAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for type checkers only
    """Limits that staff set; workers go by them within seconds."""

    list_display = ("__str__", "calls_in_flight", "requests_per_minute", "tokens_per_minute")
    fieldsets = [
        (
            None,
            {
                "fields": ["model", "calls_in_flight", "requests_per_minute", "tokens_per_minute"],
                "description": (
                    "Calls wait while a limit is reached, and their runs go back to the queue. Empty: no "
                    "limit. Workers go by a change within seconds. Name models as flows do: “groq:*” covers "
                    "all models of the provider “groq”, an empty name all models of all providers."
                ),
            },
        ),
    ]

    def save_model(self, request: HttpRequest, obj: RateLimit, form: forms.ModelForm[Any], change: bool) -> None:
        """Save, and warn about a limit that nothing falls under: most likely its model is misspelt."""
        super().save_model(request, obj, form, change)
        # The models that live versions ask, and the one that calls fall back to.
        specs = FlowVersion.objects.filter(pk__in=Flow.objects.values("live_version")).values_list("spec", flat=True)
        named = {part.get("model") for spec in specs for part in (spec, *spec["steps"])}
        limit = Limit(obj.pk, obj.model)
        if not any(limit.covers(model) for model in {settings.TOOLFLOW_MODEL, *filter(None, named)}):
            messages.warning(
                request,
                f"No flow asks a model that “{obj.model}” covers, so this limits nothing yet. Is the name right?",
            )
