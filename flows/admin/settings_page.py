"""How this installation runs a flow: settings beside its definition, which make no version and hold at once."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from flows.admin.access import require_permission
from flows.engine.spec_check import find_price_warnings
from flows.models import FLOW_SETTINGS, Flow
from flows.providers import build_providers

if TYPE_CHECKING:
    from flows.admin.flow_admin import FlowAdmin

    _FlowForm = forms.ModelForm[Flow]
else:  # Django's class is generic for type checkers only.
    _FlowForm = forms.ModelForm


class FlowSettingsForm(_FlowForm):
    """The settings of a flow. What others saved meanwhile stays where the page did not change it."""

    class Meta:
        model = Flow
        fields = FLOW_SETTINGS
        labels = {
            "max_runs_in_flight": "Runs in flight",
            "total_token_budget": "Budget of all runs (tokens)",
            "total_cost_budget": "Budget of all runs (USD)",
            "budget_period": "Budget of all runs, for each",
            "keep_days": "Keep runs (days)",
            "keep_outputs_days": "Keep outputs (days)",
        }
        help_texts = {
            "max_runs_in_flight": "Maximum number of concurrent runs; others wait in the queue. Empty: no limit.",
            "total_token_budget": (
                "Once all runs of the flow have used this many tokens, no more calls are made until the next period."
            ),
            "total_cost_budget": "The same for the cost of all runs of the flow.",
            "budget_period": "Days and months are in UTC.",
            "keep_days": (
                "Days from the end of a run until it is deleted; statistics are kept. 0: never. Empty: the "
                "default of this installation."
            ),
            "keep_outputs_days": (
                "Days until inputs, outputs, requests and issue texts are deleted; figures are kept. 0: with "
                "the run. Empty: the default of this installation."
            ),
        }
        widgets = {"total_cost_budget": forms.NumberInput(attrs={"step": "any"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            # What changed is reported against what the page showed.
            field.show_hidden_initial = True

    def clean(self) -> dict[str, Any] | None:
        """Outputs go with their runs, if not before."""
        cleaned = super().clean()
        # What the page did not change stays as it is stored now.
        posted, stored = self.cleaned_data, vars(self.instance)
        runs, outputs = (
            (posted if name in self.changed_data else stored).get(name) for name in ("keep_days", "keep_outputs_days")
        )
        if runs and outputs is not None and outputs > runs:
            sentence = f"Outputs can’t be kept longer than their runs: enter at most {runs:,} days, or leave it empty."
            self.add_error("keep_outputs_days", sentence)
        return cleaned


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The address of the page, below those of flows."""

    @require_permission("flows.change_flow")
    def show_settings(request: HttpRequest, flow_id: int) -> HttpResponse:
        with transaction.atomic():
            flows = Flow.objects.select_for_update() if request.method == "POST" else Flow.objects
            flow = get_object_or_404(flows, pk=flow_id)
            form = FlowSettingsForm(request.POST or None, instance=flow)
            if request.method == "POST" and form.is_valid():
                _save(flow_admin, request, flow, form)
                return HttpResponseRedirect(reverse("admin:flows_flow_change", args=[flow.pk]))
        context = {
            **flow_admin.admin_site.each_context(request),
            "title": f"Settings of {flow}",
            "opts": flow_admin.opts,
            "flow": flow,
            "form": form,
        }
        return TemplateResponse(request, "admin/flows/flow/settings.html", context)

    view = flow_admin.admin_site.admin_view(show_settings)
    return [path("<int:flow_id>/settings/", view, name="flows_flow_settings")]


def _save(flow_admin: FlowAdmin, request: HttpRequest, flow: Flow, form: FlowSettingsForm) -> None:
    """Store and log the fields that changed."""
    stored = Flow.objects.get(pk=flow.pk)
    changed = [name for name in form.changed_data if getattr(stored, name) != getattr(flow, name)]
    if not changed:
        messages.success(request, "Nothing changed.")
        return
    changes = [f"{form.fields[name].label} {_describe(stored, name)} → {_describe(flow, name)}" for name in changed]
    flow.save(update_fields=[*changed, "updated_at"])
    flow_admin.log_change(request, flow, f"Changed limits: {', '.join(changes)}.")
    messages.success(request, "Saved. The settings hold at once; they make no version.")
    spec = flow.live_version.readable_spec if flow.live_version is not None else None
    if flow.total_cost_budget is not None and spec is not None:
        for warning in find_price_warnings(spec, settings.TOOLFLOW_MODEL, build_providers()):
            messages.warning(request, warning)


def _describe(flow: Flow, name: str) -> str:
    value = flow.get_budget_period_display() if name == "budget_period" else getattr(flow, name)
    if value is None:
        return "none"
    if isinstance(value, Decimal):
        # Without the zeros that its column adds, and with cents.
        text = f"{value:f}".rstrip("0")
        return f"{value:.2f}" if len(text.partition(".")[2]) < 2 else text
    return f"{value:,}" if isinstance(value, int) else str(value)
