"""Changing the secret of a flow's webhook."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_http_methods

from flows.models import Flow
from flows.webhook_secret import OVERLAP
from runs.pages.access import require_permission
from runs.webhooks.secrets import change_secret, find_signer

_CHANGED_MEANWHILE = "The secret was changed meanwhile, and not again now: this page shows the one that counts."


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("flows.change_flow")
def change_flow_secret(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Ask whether the secret of a flow's own webhook should be another, and make it so."""
    flow = get_object_or_404(Flow, name=flow_name)
    secrets = find_signer(flow).read_secrets()
    back = reverse("admin:flows_flow_change", args=[flow.pk])
    if request.method == "POST":
        # What a page was shown with decides: to be sent twice, or by two people, must not end what receivers know.
        is_known = request.POST.get("number") == str(secrets.number)
        if is_known and change_secret(flow, number=secrets.number):
            messages.success(request, f"The secret is changed. The previous one counts for {OVERLAP.days} days more.")
        else:
            messages.warning(request, _CHANGED_MEANWHILE)
        return redirect(back)
    context = {"flow": flow, "secrets": secrets, "days": OVERLAP.days, "back": back}
    return render(request, "runs/change_webhook_secret.html", context)


urls: list[URLPattern] = [
    path("flows/<slug:flow_name>/webhook-secret/", change_flow_secret, name="change-flow-webhook-secret"),
]
