"""What the queue calls, and how it is asked to. A message says only “something may be due”; the rows say what."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import transaction
from django_q.tasks import async_task

from runs.models import WebhookDelivery
from runs.queue import draining

logger = logging.getLogger(__name__)

SEND_TASK = "runs.webhooks.tasks.send_due"


def send_due() -> str:
    """Send what is due, unless another process of this host does. Gives a sentence for the queue's own log."""
    from runs.webhooks.sending import send_all  # the web's processes need no client

    if not WebhookDelivery.objects.due().exists():
        return "No webhook is due."
    with hold_sender() as is_held:
        if not is_held:
            return "Another process is already sending."
        tried = send_all()
    # What came while the last tries were under way. A worker that stops leaves it to the schedule of the next one.
    if not draining.is_set():
        wake_sender_if_due()
    return f"Tried to deliver {tried} webhooks."


def wake_sender() -> None:
    """Let a worker send what is due, once the caller's transaction is stored.

    A message that gets lost does no harm: the queue's schedule calls ``send_due`` every minute.
    """
    transaction.on_commit(_send_message)


def wake_sender_if_due() -> None:
    """Let a worker send what is due, such as a retry whose time has come. One query."""
    if WebhookDelivery.objects.due().exists():
        wake_sender()


@contextmanager
def hold_sender() -> Iterator[bool]:
    """Hold the right to send on this host, a file lock that ends with its process; gives False if it is taken.

    Receivers that hang keep at most one worker process busy.
    """
    descriptor = os.open(settings.TOOLFLOW_DATA_DIR / "webhooks.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _send_message() -> None:
    try:
        async_task(SEND_TASK)
    except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
        logger.warning("The queue's broker is unreachable; webhooks are sent by the next sweep: %s", error)
