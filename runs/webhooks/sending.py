"""Sending what is due: taken from the database, sent side by side, and stored with what came back.

The database is asked by the thread of the caller; connections are the business of an event loop in another one. What
is taken is leased: a sender that dies between sending and storing leaves it to be sent again, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from flows.webhook_address import Allowance, load_allowance
from runs.models import DeliveryState, WebhookDelivery, WebhookTry
from runs.models.run import in_future
from runs.queue import draining, force_quit
from runs.webhooks.payload import build_body
from runs.webhooks.posting import TIMEOUT, Answer, post
from runs.webhooks.retries import judge
from runs.webhooks.signing import build_headers, find_signers, sign

logger = logging.getLogger(__name__)

MOST_AT_A_TIME = 20
MOST_TO_A_HOST = 4
"""A receiver that hangs leaves room for others."""
LEASE = timedelta(seconds=60)
"""How long a sender that is not heard of keeps what it took: several times as long as a try may last."""
LOOK = 0.2
"""Seconds between looks for what else is due while answers are waited for."""
PATIENCE = 20.0
"""Seconds after which a sender takes nothing new: others want its process too."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One try, ready to be sent."""

    delivery_id: int
    number: int
    """Of the try."""
    round: int
    """The same, counted since the delivery was made or asked for anew."""
    url: str
    host: str
    message_id: str
    body: str
    at: datetime
    signature: str


class Sender:
    """Sends what is due, until nothing is or ``PATIENCE`` is over. One try of a delivery at a time.

    Once the worker stops nothing new is begun: tries under way may end, and if it is to stop at once they are broken
    off, and made again when their leases are over.
    """

    def __init__(self) -> None:
        self._under_way: dict[Future[Answer], Parcel] = {}

    def run(self) -> int:
        """Send; gives how many tries were made."""
        made = 0
        end = time.monotonic() + PATIENCE
        allowance = load_allowance()
        with LoopThread() as loop:
            while True:
                if time.monotonic() < end and not draining.is_set():
                    for parcel in self._take():
                        self._under_way[loop.start(_send(parcel, allowance))] = parcel
                        made += 1
                if not self._under_way or force_quit.is_set():
                    return made
                done, _ = wait(self._under_way, timeout=LOOK, return_when=FIRST_COMPLETED)
                for future in done:
                    store_answer(self._under_way.pop(future), future.result())

    def _take(self) -> list[Parcel]:
        hosts = Counter(parcel.host for parcel in self._under_way.values())
        return take_due(free=MOST_AT_A_TIME - len(self._under_way), hosts=hosts)


def take_due(*, free: int, hosts: Counter[str]) -> list[Parcel]:
    """Lease up to ``free`` deliveries that are due, those that wait longest first, and begin a try of each.

    ``hosts`` says how many tries are under way to each host already; none gets more than ``MOST_TO_A_HOST``.
    """
    hosts = Counter(hosts)
    taken: list[WebhookDelivery] = []
    # Looked at without a lock first: this is asked often, and mostly in vain.
    if free <= 0 or not _find_due(hosts).exists():
        return []
    with transaction.atomic():
        while len(taken) < free:
            candidates = _find_due(hosts).exclude(pk__in=[row.pk for row in taken])
            rows = list(candidates.select_for_update(skip_locked=True, of=("self",))[: free - len(taken)])
            chosen = []
            for row in rows:
                if hosts[row.host] < MOST_TO_A_HOST:
                    hosts[row.host] += 1
                    chosen.append(row)
            taken += chosen
            if not chosen:
                break
        WebhookDelivery.begin_tries(taken, lease=LEASE)
    return [parcel for row in taken if (parcel := _pack(row)) is not None]


def _find_due(hosts: Counter[str]) -> Any:
    full = [host for host, count in hosts.items() if count >= MOST_TO_A_HOST]
    due = WebhookDelivery.objects.due().order_by("next_try_at", "pk")
    return due.exclude(host__in=full) if full else due


def _pack(delivery: WebhookDelivery) -> Parcel | None:
    """The try that was begun; None if it can't be made, which is stored."""
    at = timezone.now()
    parcel = Parcel(
        delivery_id=delivery.pk,
        number=delivery.try_count,
        round=delivery.round,
        url=delivery.url,
        host=delivery.host,
        message_id=delivery.message_id,
        body=delivery.body,
        at=at,
        signature="",
    )
    try:
        body = delivery.body or build_body(delivery)
        signature = sign(find_signers(delivery), message_id=delivery.message_id, at=at, body=body)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # Whatever it is would come again with every try, and others are to be sent.
        logger.exception("The webhook of run %s can't be written.", delivery.run_id)
        store_answer(parcel, Answer(problem="ToolFlow failed to write it; the log says why.", is_refused=True))
        return None
    return replace(parcel, body=body, signature=signature)


async def _send(parcel: Parcel, allowance: Allowance) -> Answer:
    headers = build_headers(message_id=parcel.message_id, at=parcel.at, signature=parcel.signature)
    return await post(parcel.url, body=parcel.body, headers=headers, allowance=allowance)


def store_answer(parcel: Parcel, answer: Answer) -> bool:
    """Store what came back, and what follows from it. False if somebody else has tried since: theirs counts."""
    verdict = judge(answer, number=parcel.round)
    now = timezone.now()
    with transaction.atomic():
        held = WebhookDelivery.objects.held(delivery_id=parcel.delivery_id, number=parcel.number)
        # Locked before the run is looked at: retention empties deliveries while it takes what the run read and wrote,
        # and what was on its way meanwhile must not bring it back.
        delivery = WebhookDelivery.objects.filter(pk=parcel.delivery_id)
        list(delivery.select_for_update().values_list("pk"))
        has_texts = delivery.filter(run__outputs_removed_at=None).exists()
        is_mine = held.update(
            state=verdict.state,
            body=parcel.body if has_texts else "",
            last_status=answer.status,
            sending_until=None,
            next_try_at=None if verdict.delay is None else in_future(timedelta(seconds=verdict.delay)),
            ended_at=None if verdict.state == DeliveryState.WAITING else now,
        )
        WebhookTry.objects.filter(delivery=parcel.delivery_id, number=parcel.number).update(
            started_at=parcel.at,
            ended_at=now,
            signature=parcel.signature,
            status=answer.status,
            problem=answer.problem,
            response=answer.body if has_texts else "",
        )
    return bool(is_mine)


class LoopThread:
    """An event loop in a thread of its own. On leaving, what is still under way is broken off."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="webhooks", daemon=True)
        self._thread.start()
        return self

    def start(self, coroutine: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begin to carry out a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._break_off(), self._loop).result(TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()

    async def _break_off(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
