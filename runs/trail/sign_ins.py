"""Entries for people who come and go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axes.signals import user_locked_out
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest
from django.utils import timezone

from runs.trail.actions import TrailAction
from runs.trail.asking import find_address
from runs.trail.entries import leave_trail

ADDRESS, BROWSER, SINCE = "signed_in_from", "signed_in_with", "signed_in_at"
"""What a session knows of its beginning."""
LONGEST_BROWSER = 300


def connect() -> None:
    """Let sign-ins leave their trail from now on."""
    user_logged_in.connect(_tell_of_sign_in, dispatch_uid="trail signed in")
    user_login_failed.connect(_tell_of_failure, dispatch_uid="trail sign-in failed")
    user_logged_out.connect(_tell_of_sign_out, dispatch_uid="trail signed out")
    user_locked_out.connect(_tell_of_lockout, dispatch_uid="trail locked out")


def _tell_of_sign_in(*, request: HttpRequest, user: User, **_: Any) -> None:
    request.session[ADDRESS] = find_address(request)
    request.session[BROWSER] = request.headers.get("User-Agent", "")[:LONGEST_BROWSER]
    request.session[SINCE] = timezone.now().isoformat()
    leave_trail(action=TrailAction.SIGNED_IN, about=user, actor=user)


def _tell_of_failure(*, credentials: Mapping[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    # Being locked out is told of by itself.
    if not getattr(request, "axes_locked_out", False):
        _tell_of_stranger(TrailAction.SIGN_IN_FAILED, credentials.get("username"))


def _tell_of_lockout(*, request: HttpRequest, username: str | None = None, **_: Any) -> None:
    # Failures are counted where they lock somebody out, and no more afterwards: who goes on leaves no further entries.
    if getattr(request, "axes_failures_since_start", None) is not None:
        _tell_of_stranger(TrailAction.LOCKED_OUT, username)


def _tell_of_stranger(action: TrailAction, name: Any) -> None:
    # What is no user's name may be a password in the wrong field: it is not kept.
    user = User.objects.filter(username=str(name).replace("\0", "")).first() if name else None
    leave_trail(action=action, about=user, details={} if user else {"unknown_name": True})


def _tell_of_sign_out(*, user: User | None, **_: Any) -> None:
    if user is not None:
        leave_trail(action=TrailAction.SIGNED_OUT, about=user, actor=user)
