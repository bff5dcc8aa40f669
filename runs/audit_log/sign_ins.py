"""Entries of sign-ins, and sessions that are ended before their time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axes.signals import user_locked_out
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from runs.audit_log.actor import find_address
from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import BrowserSession

ADDRESS, BROWSER, SINCE = "signed_in_from", "signed_in_with", "signed_in_at"
"""What a session holds of its beginning."""
MAX_BROWSER_LENGTH = 300


@transaction.atomic
def end_sessions(*, user: User) -> int:
    """Sign a user out of all browsers; return the number of sessions."""
    count, _ = BrowserSession.objects.filter(user=user.pk).delete()
    if count:
        log_audit_event(action=AuditAction.SESSIONS_ENDED, about=user, details={"sessions": count})
    return count


@receiver(post_save, sender=User)
def _end_sessions_of_closed(*, instance: User, raw: bool, **_: Any) -> None:
    # They would work again if the account were opened again.
    if not raw and not instance.is_active:
        end_sessions(user=instance)


@receiver(user_logged_in)
def _log_sign_in(*, request: HttpRequest, user: User, **_: Any) -> None:
    request.session[ADDRESS] = find_address(request)
    request.session[BROWSER] = request.headers.get("User-Agent", "")[:MAX_BROWSER_LENGTH]
    request.session[SINCE] = timezone.now().isoformat()
    log_audit_event(action=AuditAction.SIGNED_IN, about=user, actor=user)


@receiver(user_logged_out)
def _log_sign_out(*, user: User | None, **_: Any) -> None:
    if user is not None:
        log_audit_event(action=AuditAction.SIGNED_OUT, about=user, actor=user)


@receiver(user_login_failed)
def _log_failure(*, credentials: Mapping[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    # A lock-out has an entry of its own.
    if not getattr(request, "axes_locked_out", False):
        _log_anonymous(AuditAction.SIGN_IN_FAILED, credentials.get("username"))


@receiver(user_locked_out)
def _log_lockout(*, request: HttpRequest, username: str | None = None, **_: Any) -> None:
    # Only the failure that locks out is counted: those after it write no further entries.
    if getattr(request, "axes_failures_since_start", None) is not None:
        _log_anonymous(AuditAction.LOCKED_OUT, username)


def _log_anonymous(action: AuditAction, name: Any) -> None:
    # What is not a user's name may be a password in the wrong field: it is not kept.
    user = User.objects.filter(username=str(name).replace("\0", "")).first() if name else None
    log_audit_event(action=action, about=user, details={} if user else {"unknown_name": True})
