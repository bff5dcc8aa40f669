"""Another secret for one flow or one user."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from flows.models import Flow
from flows.webhook_secret import WebhookSigner
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def find_signer(owner: Flow | User | None) -> WebhookSigner:
    """In whose name messages are signed to the addresses of a flow, a user, or of runs that are nobody's."""
    if isinstance(owner, Flow):
        return WebhookSigner.of_flow(owner.pk)
    return WebhookSigner.of_user(owner.pk if owner else None)


def change_secret(owner: Flow | User | None, *, number: int) -> bool:
    """Let messages be signed with another secret from now on, and for some days with that of before, too.

    ``number`` is that of the last change that whoever asks knows of. False, and nothing is changed, if there was
    another one since.
    """
    with transaction.atomic():
        if not find_signer(owner).change_secret(number=number):
            return False
        leave_trail(
            action=TrailAction.WEBHOOK_SECRET_CHANGED, about=owner, label="" if owner else "runs that nobody started"
        )
        return True
