"""Webhook endpoints and deliveries: the lists, each delivery with its tries, and sending one again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from flows.engine.json_values import dump_json
from runs.filter_fields import parse_run_number, shorten
from runs.formatting import format_age, format_duration
from runs.history.texts import cut_text
from runs.models import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookTry
from runs.models.webhook import hide_path
from runs.pages.access import require_permission, require_viewer
from runs.pages.addresses import paginate, parse_paging
from runs.pages.badges import Badge
from runs.paging import Stream, scan
from runs.webhooks.deliveries import create_test
from runs.webhooks.deliveries import send_again as send_delivery_again
from runs.webhooks.messages import build_body, build_headers

PAGE_SIZE = 50
MAX_ENDPOINTS = 100
MAX_SHOWN_TRIES = 50
"""The latest tries of a delivery that are listed; it has at most eight unless it is sent again."""
MAX_PAYLOAD = 100_000
"""Characters of a payload that a page shows."""
SOON = timedelta(seconds=8)
"""A page on which the next try is so near keeps itself up to date."""

BADGES: Mapping[str, Badge] = {
    "waiting": Badge("Queued", "clock", "quiet"),
    "sending": Badge("Sending", "arrow-path", "running"),
    "retrying": Badge("Waiting to retry", "clock", "running"),
    "delivered": Badge("Delivered", "check-circle", "passed"),
    "failed": Badge("Not delivered", "x-circle", "failed"),
}


@require_viewer
def show_deliveries(request: HttpRequest) -> HttpResponse:
    """The endpoints, for those who may see them, and the deliveries: ``state``, ``run``, ``before`` and ``after``.

    A value that is not valid gives a sentence and is left out.
    """
    query, now, problems = request.GET, timezone.now(), list[str]()
    state = query.get("state", "")
    if state and state not in DeliveryState.values:
        problems.append(f"“{shorten(state)}” is not a state; it can be {', '.join(DeliveryState.values)}.")
        state = ""
    run = parse_run_number(query.get("run", ""))
    if query.get("run") and run is None:
        problems.append(f"“{shorten(query['run'])}” is not a run number.")
    before, after = parse_paging(query, problems)
    filters = {name: value for name, value in (("state", state), ("run", run)) if value}

    def build_url(**changes: Any) -> str:
        values = {name: value for name, value in {**filters, **changes}.items() if value}
        return reverse("runs:webhooks", query=values)

    stream = Stream(WebhookDelivery.objects.filter(**filters), time="")
    found = scan([stream], limit=PAGE_SIZE + 1, before=before, after=after)
    keys, links = paginate(found, page_size=PAGE_SIZE, before=before, after=after, build_url=build_url)
    rows = WebhookDelivery.objects.filter(pk__in=keys).annotate(flow_title=F("flow__title")).order_by("-pk")
    is_filtered = bool(filters) or bool(links.newest_url)
    words = [("All", ""), *((BADGES[value].word, value) for value in DeliveryState.values)]
    endpoints: Any = WebhookEndpoint.objects.none()
    if request.user.has_perm("runs.view_webhookendpoint") and not is_filtered:
        endpoints = WebhookEndpoint.objects.with_last_delivery().select_related("flow")[:MAX_ENDPOINTS]
    context = {
        "rows": [_describe_row(row, now) for row in rows.defer("body")],
        "warnings": problems,
        "states": [(word, build_url(state=value), state == value) for word, value in words],
        "run": run,
        "page": links,
        "is_filtered": is_filtered,
        "endpoints": [(row, hide_path(row.url), BADGES.get(row.last_delivery_state or "")) for row in endpoints],
    }
    return render(request, "runs/webhooks.html", context)


def _describe_row(delivery: WebhookDelivery, now: datetime) -> Mapping[str, Any]:
    state = find_state(delivery, now)
    next_try = "now" if state == "sending" else ""
    if not next_try and delivery.next_try_at is not None and delivery.is_waiting:
        wait = delivery.next_try_at - now
        next_try = f"in {format_age(max(wait, timedelta(seconds=10)))}" if wait > timedelta(0) else "now"
    return {
        "delivery": delivery,
        "badge": BADGES[state],
        "answer": delivery.last_status or ("No answer" if state in ("retrying", "failed") else ""),
        "next_try": next_try,
    }


def find_state(delivery: WebhookDelivery, now: datetime) -> str:
    """The state as pages show it: ``waiting`` is split into ``waiting``, ``sending`` and ``retrying``."""
    if delivery.state != DeliveryState.WAITING:
        return str(delivery.state)
    if delivery.sending_until is not None and delivery.sending_until > now:
        return "sending"
    return "retrying" if delivery.round else "waiting"


@require_viewer
def show_delivery(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """One delivery with its tries. Asked for with ``?seen=`` only what changes, or 204 if nothing has."""
    delivery, now = _fetch_delivery(delivery_id), timezone.now()
    state = find_state(delivery, now)
    is_update, seen = request.headers.get("HX-Request") == "true", f"{state}-{delivery.try_count}"
    if is_update and request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    tries = list(delivery.tries.order_by("-number")[:MAX_SHOWN_TRIES])
    sent = next((one for one in tries if one.signature), None)
    is_soon = delivery.next_try_at is not None and delivery.next_try_at - now < SOON
    context = {
        "delivery": delivery,
        "badge": BADGES[state],
        "is_sending": state == "sending",
        "tries": [_describe_try(one, state == "sending" and one.number == delivery.try_count) for one in tries],
        "hidden_tries": max(0, delivery.try_count - len(tries)),
        "headers": _format_headers(delivery, sent) if sent else "",
        "is_moving": state == "sending" or (delivery.is_waiting and is_soon),
        "seen": seen,
        "is_update": is_update,
    }
    if not is_update:
        payload = dump_json(json.loads(delivery.body or build_body(delivery)), indent=2)
        context["payload"] = cut_text(payload, MAX_PAYLOAD)
    return render(request, "runs/webhook.html", context)


def _fetch_delivery(delivery_id: int) -> WebhookDelivery:
    return get_object_or_404(WebhookDelivery.objects.select_related("run__flow", "endpoint"), pk=delivery_id)


def _describe_try(one: WebhookTry, is_under_way: bool) -> Sequence[Any]:
    """The try, its status (empty while it is under way), what came of it, and how long it took."""
    result = one.problem or ("Delivered." if one.ended_at else "")
    if one.ended_at is None and not is_under_way:
        result = "The worker stopped before it stored an answer."
    status = "" if is_under_way and not one.status else str(one.status or "None")
    return one, status, result, format_duration(one.duration.total_seconds() if one.duration else None)


def _format_headers(delivery: WebhookDelivery, one: WebhookTry) -> str:
    """The headers of a try, as they were sent."""
    own = build_headers(message_id=delivery.message_id, at=one.started_at, signature=one.signature)
    return "\n".join(f"{name}: {value}" for name, value in {"content-type": "application/json", **own}.items())


@require_POST
@require_permission("runs.view_run", "runs.change_run")
def send_again(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """Make a new try at once, with all retries before it; a try that is under way is not doubled."""
    if send_delivery_again(_fetch_delivery(delivery_id)):
        messages.success(request, "New delivery requested.")
    else:
        messages.info(request, "A try was already under way; no new one was started.")
    return redirect("runs:webhook", delivery_id=delivery_id)


@require_POST
@require_permission("runs.view_run", "runs.change_webhookendpoint")
def send_test(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    """Send a test to an endpoint, and show its delivery."""
    delivery = create_test(get_object_or_404(WebhookEndpoint, pk=endpoint_id))
    return redirect("runs:webhook", delivery_id=delivery.pk)
