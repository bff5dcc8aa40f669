"""What queue messages and the queue's schedule name."""

from __future__ import annotations

from runs.models import WebhookDelivery
from runs.queue import draining
from runs.webhooks.messages import wake_sender
from runs.webhooks.sender_lock import SenderLock
from runs.webhooks.sending import Sender


def send_due() -> str:
    """Send what is due, unless somebody does so on this host. Gives a sentence for the queue's own log."""
    if not WebhookDelivery.objects.due().exists():
        return "No webhook is due."
    lock = SenderLock.take()
    if lock is None:
        return "Somebody sends already."
    try:
        tried = Sender().run()
    finally:
        lock.release()
    # What came while the last ones were under way, and was left to this sender. A worker that stops leaves it to the
    # schedule of the next one.
    if not draining.is_set() and WebhookDelivery.objects.due().exists():
        wake_sender()
    return f"Tried to deliver {tried} webhooks."
