"""What receivers of webhooks were told: the list of deliveries, each with its tries, and sending one again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from runs.filter_fields import parse_run_number, shorten
from runs.models import DeliveryState, WebhookDelivery, WebhookTry
from runs.pages.access import require_permission
from runs.pages.json_lines import Listing, list_json, list_text
from runs.pages.list_turns import ListTurns, turn_pages
from runs.paging import Stream, check, scan
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail
from runs.webhooks import retries
from runs.webhooks.messages import wake_sender
from runs.webhooks.payload import build_body
from runs.webhooks.signing import build_headers

PAGE_SIZE = 50
MOST_TRIES = 50
"""Of a delivery, the latest; it has eight unless somebody asks for more."""
SOON = timedelta(seconds=8)
"""A page on which the next try is so near keeps itself up to date."""
_COLUMNS = (
    "pk", "event", "run_id", "host", "state", "try_count", "tries_before", "last_status", "next_try_at",
    "sending_until", "created_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StateChoice:
    word: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One delivery in the list; ``row`` has the columns that it shows."""

    row: Any
    event: str
    state: str

    @property
    def is_refused(self) -> bool:
        """Whether it went nowhere, since its address leads where webhooks may not go: it is not tried again then."""
        tries = self.row.try_count - self.row.tries_before
        return self.state == DeliveryState.FAILED and self.row.last_status is None and tries < retries.MOST_TRIES


@dataclass(frozen=True, slots=True)
class DeliveryList:
    """One page of the list, the newest first."""

    rows: tuple[DeliveryRow, ...]
    problems: tuple[str, ...]
    states: tuple[StateChoice, ...]
    run: int | None
    """The run whose deliveries are shown; None for all."""
    turns: ListTurns
    is_filtered: bool
    now: datetime


@require_safe
@require_permission("runs.view_run")
def show_deliveries(request: HttpRequest) -> HttpResponse:
    """The list of deliveries."""
    return render(request, "runs/webhooks.html", {"page": load_delivery_list(request.GET, timezone.now())})


@require_safe
@require_permission("runs.view_run")
def show_delivery(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """One delivery with its tries. Asked for with ``?seen=`` only what moves, or 204 if nothing has."""
    delivery = _find_delivery(delivery_id)
    context = _describe(delivery, timezone.now())
    if request.headers.get("HX-Request") == "true":
        if request.GET.get("seen") == context["seen"]:
            return HttpResponse(status=204)
        return render(request, "runs/webhook_progress.html", {**context, "is_update": True})
    body = delivery.body or build_body(delivery)
    return render(request, "runs/webhook.html", {**context, "payload": _list_body(body)})


@require_POST
@require_permission("runs.view_run")
@require_permission("runs.change_run")
def send_again(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """Make a new try at once, with all retries before it. One that is under way is waited for instead."""
    delivery = _find_delivery(delivery_id)
    with transaction.atomic():
        if is_asked := delivery.send_again():
            leave_trail(action=TrailAction.WEBHOOK_SENT_AGAIN, about=delivery)
    if is_asked:
        wake_sender()
        messages.success(request, "It is being sent again.")
    else:
        messages.info(request, "It is being sent at this moment.")
    return redirect("runs:webhook", delivery_id=delivery_id)


def load_delivery_list(query: Mapping[str, str], now: datetime) -> DeliveryList:
    """Read the page that a query string asks for: ``state``, ``run``, and ``before`` or ``after`` a delivery's number.

    A value that makes no sense gives a sentence in ``problems`` and is left out.
    """
    problems: list[str] = []
    state = query.get("state", "")
    if state and state not in DeliveryState.values:
        problems.append(f"There is no state “{shorten(state)}”: it is {', '.join(DeliveryState.values)}.")
        state = ""
    run, before, after = (_read_number(query, name, problems) for name in ("run", "before", "after"))
    if before is not None and after is not None:
        problems.append("“before” and “after” can’t be combined; the newest deliveries are shown.")
        before = after = None
    filters = {name: value for name, value in (("state", state), ("run", run)) if value}
    # Of a run there are few: a database that was told of both might go through all in that state.
    deliveries = WebhookDelivery.objects.filter(**({"run": run} if run else filters))
    found = scan(
        [Stream(deliveries, time="")],
        limit=PAGE_SIZE + 1,
        before=before,
        after=after,
        matches=check(Q(state=state)) if run and state else None,
    )
    keys, turns = turn_pages(
        found,
        page_size=PAGE_SIZE,
        before=before,
        after=after,
        build_url=partial(_build_url, filters),
    )
    return DeliveryList(
        rows=tuple(DeliveryRow(row, _EVENTS[row.event], find_state(row, now)) for row in _load_rows(keys)),
        problems=tuple(problems),
        states=tuple(
            StateChoice(word, _build_url({**filters, "state": value}), state == value)
            for word, value in (("All", ""), *((str(one.label), one.value) for one in DeliveryState))
        ),
        run=run,
        turns=turns,
        is_filtered=bool(filters) or before is not None or after is not None,
        now=now,
    )


_EVENTS = dict(WebhookDelivery._meta.get_field("event").flatchoices)


def _load_rows(keys: Sequence[int]) -> QuerySet[Any, Any]:
    rows = WebhookDelivery.objects.filter(pk__in=keys).annotate(flow_title=F("run__flow__title"))
    return rows.order_by("-pk").values_list(*_COLUMNS, "flow_title", named=True)


def find_state(row: Any, now: datetime) -> str:
    """How a delivery stands, as pages tell it: ``sending`` and ``retrying`` are told apart from ``waiting``."""
    if row.state != DeliveryState.WAITING:
        return str(row.state)
    if row.sending_until is not None and row.sending_until > now:
        return "sending"
    return "retrying" if row.try_count > row.tries_before else "waiting"


def _read_number(query: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = query.get(name, "")
    number = None if text.startswith("#") else parse_run_number(text)
    if text and number is None:
        problems.append(f"“{shorten(text)}” is no number; “{name}” is left out.")
    return number


def _build_url(filters: Mapping[str, Any], **paging: int) -> str:
    query = urlencode({name: value for name, value in {**filters, **paging}.items() if value != ""})
    return reverse("runs:webhooks") + (f"?{query}" if query else "")


def _find_delivery(delivery_id: int) -> WebhookDelivery:
    # A number that no column can hold is one that there is not.
    rows = WebhookDelivery.objects.select_related("run__flow").defer("run__input", "run__model_settings")
    delivery = rows.filter(pk=delivery_id).first() if delivery_id < 2**63 else None
    if delivery is None:
        raise Http404
    return delivery


def _describe(delivery: WebhookDelivery, now: datetime) -> dict[str, Any]:
    """What the part of the page shows that keeps itself up to date."""
    tries = list(delivery.tries.order_by("-number")[:MOST_TRIES])
    state = find_state(delivery, now)
    is_soon = delivery.next_try_at is not None and delivery.next_try_at - now < SOON
    return {
        "delivery": delivery,
        "state": state,
        "tries": [(one, _is_lost(one, delivery, state)) for one in tries],
        "hidden_tries": max(0, delivery.try_count - len(tries)),
        "headers": _list_headers(delivery, tries),
        "is_moving": state == "sending" or (delivery.is_waiting and is_soon),
        "seen": f"{state}-{delivery.try_count}",
        "now": now,
    }


def _is_lost(one: WebhookTry, delivery: WebhookDelivery, state: str) -> bool:
    """Whether whoever made a try died before its answer was stored."""
    is_under_way = state == "sending" and one.number == delivery.try_count
    return one.ended_at is None and not is_under_way


def _list_headers(delivery: WebhookDelivery, tries: Sequence[WebhookTry]) -> Listing | None:
    """The headers of the last try that was signed, as they were sent; None if there is none."""
    for one in tries:
        if one.signature:
            own = build_headers(message_id=delivery.message_id, at=one.started_at, signature=one.signature)
            headers = {"content-type": "application/json", **own}
            return list_text("\n".join(f"{name}: {value}" for name, value in headers.items()))
    return None


def _list_body(body: str) -> Listing:
    return list_json(json.loads(body))


urls: list[URLPattern] = [
    path("webhooks/", show_deliveries, name="webhooks"),
    path("webhooks/<int:delivery_id>/", show_delivery, name="webhook"),
    path("webhooks/<int:delivery_id>/send/", send_again, name="webhook-send"),
]
