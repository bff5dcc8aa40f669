"""Sessions that end before their time, with an entry that says so."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.signals import post_save

from runs.models import BrowserSession
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def connect() -> None:
    """End the sessions of accounts that are closed, from now on."""
    post_save.connect(_end_those_of_closed, sender=User, dispatch_uid="sessions of closed accounts")


@transaction.atomic
def end_sessions(*, user: User) -> int:
    """Sign somebody out of all browsers; gives how many sessions these were."""
    count, _ = BrowserSession.objects.filter(user=user.pk).delete()
    if count:
        leave_trail(action=TrailAction.SESSIONS_ENDED, about=user, details={"sessions": count})
    return count


def _end_those_of_closed(*, instance: User, raw: bool, **_: Any) -> None:
    # They let nobody in while the account is closed, and must not do so either when it is opened again.
    if not raw and not instance.is_active:
        end_sessions(user=instance)
