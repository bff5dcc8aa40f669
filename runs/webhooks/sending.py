"""Sending what is due: claimed in the database, sent side by side, and stored with what came back.

What is claimed is leased: a sender that dies between sending and storing leaves it to be sent again, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from asgiref.sync import async_to_sync, sync_to_async
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F
from django.utils import timezone

from runs.models import DeliveryState, WebhookDelivery, WebhookEvent, WebhookTry
from runs.models.run import in_future
from runs.queue import draining, force_quit
from runs.webhooks.messages import build_body, build_headers, fetch_installation_secret, list_secrets, sign
from runs.webhooks.posting import Answer, post

logger = logging.getLogger(__name__)

MAX_AT_A_TIME = 20
MAX_PER_HOST = 4
"""A receiver that hangs leaves room for others."""
LEASE = timedelta(seconds=60)
"""How long a sender that died keeps what it claimed: several times as long as a try may last."""
POLL_INTERVAL = 0.2
"""Seconds between polls for what else is due while tries are under way."""
MAX_SECONDS = 20.0
"""After which a sender claims nothing new: other tasks want its process too."""

RETRY_DELAYS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 86_400.0)
"""Seconds before the second try, the third and so on; after the last one it has failed."""
MAX_TRIES = len(RETRY_DELAYS) + 1
JITTER = 0.2
"""The part by which delays are longer or shorter, so that what failed together does not come back together."""
GONE = 410
"""The status of a receiver that wants no more of this."""


def send_all() -> int:
    """Send until nothing is due or ``MAX_SECONDS`` are over; gives the number of tries.

    Once the worker stops nothing new is claimed: tries under way may end. If it is to quit at once they are broken
    off, and made again when their leases are over.
    """
    return async_to_sync(_send_all)()


async def _send_all() -> int:
    # Queries run in the thread of the caller.
    claim, store = sync_to_async(claim_due), sync_to_async(store_answer)
    under_way: dict[asyncio.Task[Answer], WebhookTry] = {}
    count = 0
    end = time.monotonic() + MAX_SECONDS
    try:
        while True:
            if time.monotonic() < end and not draining.is_set():
                hosts = Counter(one.delivery.host for one in under_way.values())
                for one in await claim(free=MAX_AT_A_TIME - len(under_way), hosts=hosts):
                    under_way[asyncio.create_task(_send(one))] = one
                    count += 1
            if not under_way or force_quit.is_set():
                return count
            done, _ = await asyncio.wait(under_way, timeout=POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await store(under_way.pop(task), task.result())
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _send(one: WebhookTry) -> Answer:
    headers = build_headers(message_id=one.delivery.message_id, at=one.started_at, signature=one.signature)
    return await post(one.delivery.url, body=one.delivery.body, headers=headers)


def claim_due(*, free: int, hosts: Mapping[str, int]) -> list[WebhookTry]:
    """Lease up to ``free`` deliveries that are due, the longest waiting first, and begin a try of each.

    ``hosts`` counts the tries under way to each host; none gets more than ``MAX_PER_HOST``.
    """
    counts = Counter(hosts)
    full = [host for host, count in counts.items() if count >= MAX_PER_HOST]
    due = WebhookDelivery.objects.due().exclude(host__in=full).order_by("next_try_at", "pk")
    # Polled without a lock: mostly nothing is due.
    if free <= 0 or not due.exists():
        return []
    claimed: list[WebhookDelivery] = []
    with transaction.atomic():
        for row in due.select_for_update(skip_locked=True, of=("self",))[:free]:
            if counts[row.host] < MAX_PER_HOST:
                counts[row.host] += 1
                row.try_count += 1
                claimed.append(row)
        keys = [row.pk for row in claimed]
        WebhookDelivery.objects.filter(pk__in=keys).update(try_count=F("try_count") + 1, sending_until=in_future(LEASE))
        begun = [WebhookTry(delivery=row, number=row.try_count) for row in claimed]
        WebhookTry.objects.bulk_create(begun)
    return [one for one in begun if _sign(one)]


def _sign(one: WebhookTry) -> bool:
    """Build the message of a try that begins now, and its signature. False if that can't be done, which is stored."""
    delivery, one.started_at = one.delivery, timezone.now()
    try:
        if secrets := _list_secrets(delivery):
            delivery.body = delivery.body or build_body(delivery)
            one.signature = sign(secrets, message_id=delivery.message_id, at=one.started_at, body=delivery.body)
            return True
        problem = "Its endpoint was deleted or disabled."
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # It would fail the same way with every try, and others are to be sent.
        logger.exception("The webhook of run %s can't be built.", delivery.run_id)
        problem = "Internal error when building it; see the log."
    store_answer(one, Answer(problem=problem, is_refused=True))
    return False


def _list_secrets(delivery: WebhookDelivery) -> list[str]:
    """What a delivery is signed with: the secrets of its endpoint, and of the installation for the run's own address.

    Empty if its endpoint was deleted or disabled since.
    """
    endpoint, run = delivery.endpoint, delivery.run
    secrets: list[str] = []
    if endpoint is not None and (endpoint.is_enabled or delivery.event == WebhookEvent.TEST):
        secrets += list_secrets(endpoint)
    if run is not None and run.webhook_url == delivery.url:
        secrets += list_secrets(fetch_installation_secret())
    return secrets


def choose_next(answer: Answer, *, number: int) -> tuple[DeliveryState, float | None]:
    """The status of a delivery after its try ``number``, from 1, and the seconds until the next one."""
    if not answer.problem:
        return DeliveryState.DELIVERED, None
    if answer.is_refused or answer.status == GONE or number >= MAX_TRIES:
        return DeliveryState.FAILED, None
    delay = RETRY_DELAYS[number - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # spreads load only
    return DeliveryState.WAITING, max(delay, answer.retry_after or 0.0)


def store_answer(one: WebhookTry, answer: Answer) -> bool:
    """Store what came back, and what follows from it. False if there was a later try since: that one counts."""
    state, delay = choose_next(answer, number=one.delivery.round)
    now = timezone.now()
    with transaction.atomic():
        delivery = WebhookDelivery.objects.filter(pk=one.delivery.pk)
        # Locked before the run is read: retention empties deliveries while it removes what the run read and wrote, and
        # what was on its way meanwhile must not bring it back.
        list(delivery.select_for_update().values_list("pk"))
        has_texts = delivery.filter(run__outputs_removed_at=None).exists()
        is_latest = delivery.filter(try_count=one.number).update(
            state=state,
            body=one.delivery.body if has_texts else "",
            last_status=answer.status,
            sending_until=None,
            next_try_at=None if delay is None else in_future(timedelta(seconds=delay)),
            ended_at=None if state == DeliveryState.WAITING else now,
        )
        WebhookTry.objects.filter(pk=one.pk).update(
            started_at=one.started_at,
            ended_at=now,
            signature=one.signature,
            status=answer.status,
            problem=answer.problem,
            response=answer.body if has_texts else "",
        )
    return bool(is_latest)
