"""Webhook endpoints and deliveries: the lists, each delivery with its tries, and sending one again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from flows.engine.json_values import dump_json
from runs.filter_fields import parse_run_number, shorten
from runs.formatting import format_age, format_duration
from runs.history.texts import cut_text
from runs.models import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent, WebhookTry
from runs.models.webhook import hide_path
from runs.pages.access import require_permission
from runs.pages.addresses import Pager, paginate
from runs.pages.badges import Badge
from runs.paging import Stream, scan
from runs.webhooks.deliveries import create_test
from runs.webhooks.deliveries import send_again as send_delivery_again
from runs.webhooks.messages import build_body, build_headers

PAGE_SIZE = 50
MAX_ENDPOINTS = 100
MAX_TRIES = 50
"""Of a delivery, the latest; it has eight unless it is sent again."""
MAX_PAYLOAD = 100_000
"""Characters of a payload that a page shows."""
SOON = timedelta(seconds=8)
"""A page on which the next try is so near keeps itself up to date."""
_EVENTS = {event.value: event.label for event in WebhookEvent}


BADGES: Mapping[str, Badge] = {
    "waiting": Badge("Queued", "clock", "quiet"),
    "sending": Badge("Sending", "arrow-path", "running"),
    "retrying": Badge("Waiting to retry", "clock", "running"),
    "delivered": Badge("Delivered", "check-circle", "passed"),
    "failed": Badge("Not delivered", "x-circle", "failed"),
}


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One delivery in the list."""

    delivery: WebhookDelivery
    event: str
    flow_title: str
    badge: Badge
    answer: str
    """Status of the last answer; empty where none was due yet."""
    next_try: str
    age: str


@dataclass(frozen=True, slots=True)
class TryRow:
    """One try of a delivery."""

    one: WebhookTry
    status: str
    """Empty while it is under way."""
    result: str
    duration: str


@dataclass(frozen=True, slots=True)
class DeliveryList:
    """One page of the list, the newest first."""

    rows: Sequence[DeliveryRow]
    problems: Sequence[str]
    states: Sequence[tuple[str, str, bool]]
    """Word, address and whether it is the current one."""
    run: int | None
    """The run whose deliveries are shown; None for all."""
    turns: Pager
    is_filtered: bool


@require_safe
@require_permission("runs.view_run")
def show_deliveries(request: HttpRequest) -> HttpResponse:
    """The endpoints, for those who may see them, and the list of deliveries."""
    page = load_delivery_list(request.GET, timezone.now())
    endpoints: list[tuple[Any, str, Badge | None]] = []
    if request.user.has_perm("runs.view_webhookendpoint") and not page.is_filtered:
        rows: Any = WebhookEndpoint.objects.with_last_delivery().select_related("flow")[:MAX_ENDPOINTS]
        endpoints = [(row, hide_path(row.url), BADGES.get(row.last_delivery_state or "")) for row in rows]
    return render(request, "runs/webhooks.html", {"page": page, "endpoints": endpoints})


@require_safe
@require_permission("runs.view_run")
def show_delivery(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """One delivery with its tries. Asked for with ``?seen=`` only what changes, or 204 if nothing has."""
    delivery = _fetch_delivery(delivery_id)
    context = _describe(delivery, timezone.now())
    if request.headers.get("HX-Request") == "true":
        if request.GET.get("seen") == context["seen"]:
            return HttpResponse(status=204)
        return render(request, "runs/webhook_progress.html", {**context, "is_update": True})
    payload = dump_json(json.loads(delivery.body or build_body(delivery)), indent=2)
    return render(request, "runs/webhook.html", {**context, "payload": cut_text(payload, MAX_PAYLOAD)})


@require_POST
@require_permission("runs.view_run")
@require_permission("runs.change_run")
def send_again(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """Make a new try at once, with all retries before it; a try that is under way is not doubled."""
    if send_delivery_again(_fetch_delivery(delivery_id)):
        messages.success(request, "New delivery requested.")
    else:
        messages.info(request, "A try was already under way; no new one was started.")
    return redirect("runs:webhook", delivery_id=delivery_id)


@require_POST
@require_permission("runs.view_run")
@require_permission("runs.change_webhookendpoint")
def send_test(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    """Send a test to an endpoint, and show its delivery."""
    delivery = create_test(get_object_or_404(WebhookEndpoint, pk=endpoint_id))
    return redirect("runs:webhook", delivery_id=delivery.pk)


def load_delivery_list(query: Mapping[str, str], now: datetime) -> DeliveryList:
    """Load the page that a query string asks for: ``state``, ``run``, and ``before`` or ``after`` a delivery's number.

    A value that is not valid gives a sentence in ``problems`` and is left out.
    """
    problems: list[str] = []
    state = query.get("state", "")
    if state and state not in DeliveryState.values:
        problems.append(f"“{shorten(state)}” is not a state; it can be {', '.join(DeliveryState.values)}.")
        state = ""
    run, before, after = (_parse_number(query, name, problems) for name in ("run", "before", "after"))
    if before is not None and after is not None:
        problems.append("“before” and “after” can’t be combined; the newest deliveries are shown.")
        before = after = None
    filters = {name: value for name, value in (("state", state), ("run", run)) if value}
    found = scan(
        [Stream(WebhookDelivery.objects.filter(**filters), time="")], limit=PAGE_SIZE + 1, before=before, after=after
    )
    keys, turns = paginate(
        found, page_size=PAGE_SIZE, before=before, after=after, build_url=partial(_build_url, filters)
    )
    rows = WebhookDelivery.objects.filter(pk__in=keys).annotate(flow_title=F("flow__title")).order_by("-pk")
    words = [("All", ""), *((BADGES[value].word, value) for value in DeliveryState.values)]
    return DeliveryList(
        rows=[_build_row(row, now) for row in rows.defer("body")],
        problems=problems,
        states=[(word, _build_url({**filters, "state": value}), state == value) for word, value in words],
        run=run,
        turns=turns,
        is_filtered=bool(filters) or before is not None or after is not None,
    )


def _build_row(delivery: Any, now: datetime) -> DeliveryRow:
    state = find_state(delivery, now)
    next_try = ""
    if state == "sending":
        next_try = "now"
    elif delivery.next_try_at is not None and delivery.is_waiting:
        seconds = (delivery.next_try_at - now).total_seconds()
        next_try = "now" if seconds <= 0 else f"in {format_age(timedelta(seconds=max(seconds, 10)))}"
    return DeliveryRow(
        delivery,
        event=_EVENTS[delivery.event],
        flow_title=delivery.flow_title or "",
        badge=BADGES[state],
        answer=str(delivery.last_status or ("No answer" if state in ("retrying", "failed") else "")),
        next_try=next_try,
        age=format_age(now - delivery.created_at),
    )


def find_state(delivery: WebhookDelivery, now: datetime) -> str:
    """The state as pages show it: ``waiting`` is split into ``waiting``, ``sending`` and ``retrying``."""
    if delivery.state != DeliveryState.WAITING:
        return str(delivery.state)
    if delivery.sending_until is not None and delivery.sending_until > now:
        return "sending"
    return "retrying" if delivery.round else "waiting"


def _parse_number(query: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = query.get(name, "")
    number = None if text.startswith("#") else parse_run_number(text)
    if text and number is None:
        problems.append(f"“{shorten(text)}” is not a {'run' if name == 'run' else 'delivery'} number.")
    return number


def _build_url(filters: Mapping[str, Any], **place: Any) -> str:
    query = urlencode({name: value for name, value in {**filters, **place}.items() if value})
    return reverse("runs:webhooks") + (f"?{query}" if query else "")


def _fetch_delivery(delivery_id: int) -> WebhookDelivery:
    return get_object_or_404(WebhookDelivery.objects.select_related("run__flow", "endpoint"), pk=delivery_id)


def _describe(delivery: WebhookDelivery, now: datetime) -> dict[str, Any]:
    """What the part of the page shows that keeps itself up to date."""
    tries = list(delivery.tries.order_by("-number")[:MAX_TRIES])
    state = find_state(delivery, now)
    is_soon = delivery.next_try_at is not None and delivery.next_try_at - now < SOON
    return {
        "delivery": delivery,
        "badge": BADGES[state],
        "sending": BADGES["sending"],
        "is_sending": state == "sending",
        "tries": [_describe_try(one, state == "sending" and one.number == delivery.try_count) for one in tries],
        "hidden_tries": max(0, delivery.try_count - len(tries)),
        "headers": _format_headers(delivery, tries),
        "is_moving": state == "sending" or (delivery.is_waiting and is_soon),
        "seen": f"{state}-{delivery.try_count}",
    }


def _describe_try(one: WebhookTry, is_under_way: bool) -> TryRow:
    is_lost = one.ended_at is None and not is_under_way
    result = one.problem or ("Delivered." if one.ended_at else "")
    if is_lost:
        result = "The worker stopped before it stored an answer."
    duration = format_duration(one.duration.total_seconds() if one.duration else None)
    return TryRow(one, "" if is_under_way and not one.status else str(one.status or "None"), result, duration)


def _format_headers(delivery: WebhookDelivery, tries: Sequence[WebhookTry]) -> str:
    """The headers of the last try that was signed, as they were sent; empty if there is none."""
    for one in tries:
        if one.signature:
            own = build_headers(message_id=delivery.message_id, at=one.started_at, signature=one.signature)
            headers = {"content-type": "application/json", **own}
            return "\n".join(f"{name}: {value}" for name, value in headers.items())
    return ""


urls: list[URLPattern] = [
    path("webhooks/", show_deliveries, name="webhooks"),
    path("webhooks/<number:delivery_id>/", show_delivery, name="webhook"),
    path("webhooks/<number:delivery_id>/send/", send_again, name="webhook-send"),
    path("webhooks/endpoints/<number:endpoint_id>/test/", send_test, name="webhook-test"),
]
