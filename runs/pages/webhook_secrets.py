"""Changing the secret of a flow's webhook, or of one's own."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_http_methods

from flows.models import Flow
from flows.webhook_secret import OVERLAP
from runs.pages.access import require_permission
from runs.webhooks.secrets import change_secret, find_signer

_CHANGED_MEANWHILE = "The secret was changed meanwhile, and not once more now: this page shows the one that counts."


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.add_run")
def change_own_secret(request: HttpRequest) -> HttpResponse:
    """Ask whether the secret of one's own webhooks should be another, and make it so."""
    user = request.user
    assert isinstance(user, User), "Strangers are not let in."
    return _change(request, user, reverse("runs:account"))


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("flows.change_flow")
def change_flow_secret(request: HttpRequest, flow_name: str) -> HttpResponse:
    """Ask whether the secret of a flow's own webhook should be another, and make it so."""
    flow = get_object_or_404(Flow, name=flow_name)
    return _change(request, flow, reverse("admin:flows_flow_change", args=[flow.pk]))


def _change(request: HttpRequest, owner: Flow | User, back: str) -> HttpResponse:
    secrets = find_signer(owner).read_secrets()
    if request.method == "POST":
        # What a page was shown with decides: to be sent twice, or by two people, must not end what receivers know.
        is_known = request.POST.get("number") == str(secrets.number)
        if is_known and change_secret(owner, number=secrets.number):
            messages.success(request, f"The secret is another one. That of before counts for {OVERLAP.days} days more.")
        else:
            messages.warning(request, _CHANGED_MEANWHILE)
        return redirect(back)
    context = {
        "flow": owner if isinstance(owner, Flow) else None,
        "secrets": secrets,
        "days": OVERLAP.days,
        "back": back,
    }
    return render(request, "runs/change_webhook_secret.html", context)


urls: list[URLPattern] = [
    path("account/webhook-secret/", change_own_secret, name="change-webhook-secret"),
    path("flows/<slug:flow_name>/webhook-secret/", change_flow_secret, name="change-flow-webhook-secret"),
]
