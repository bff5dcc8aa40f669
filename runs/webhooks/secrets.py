"""Another secret for one flow or for the installation."""

from __future__ import annotations

from django.db import transaction

from flows.models import Flow
from flows.webhook_secret import WebhookSigner
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def find_signer(flow: Flow | None) -> WebhookSigner:
    """In whose name messages are signed: that of ``flow``, or None for the installation."""
    return WebhookSigner.of_flow(flow.pk) if flow else WebhookSigner.of_installation()


def change_secret(flow: Flow | None, *, number: int) -> bool:
    """Sign messages with another secret from now on, and for some days with the previous one, too.

    ``number`` is that of the last change that the caller knows. False, and nothing is changed, if there was another
    one since.
    """
    with transaction.atomic():
        if not find_signer(flow).change_secret(number=number):
            return False
        leave_trail(
            action=TrailAction.WEBHOOK_SECRET_CHANGED, about=flow, label="" if flow else "addresses given with runs"
        )
        return True
