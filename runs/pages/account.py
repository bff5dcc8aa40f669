"""One's own account: the password, and the browsers that are signed in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from runs.audit_log.events import AuditAction, log_audit_event
from runs.audit_log.sign_ins import ADDRESS, BROWSER, SINCE
from runs.formatting import format_plural
from runs.models import ApiToken, BrowserSession
from runs.pages.access import get_user, require_sign_in
from runs.tokens import revoke_token

MAX_SESSIONS = 50
"""Sessions of one user that are listed, those that last longest first."""

_GOOD_PASSWORDS = "At least 8 characters, not only digits, not a common password, and not similar to your name."
_BROWSERS = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac", "Linux")


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@require_sign_in
def show_account(request: HttpRequest) -> HttpResponse:
    """The user's account; a form that is sent changes the password, and signs out everywhere else."""
    user, now = get_user(request), timezone.now()
    is_sent = request.method == "POST"
    form = PasswordChangeForm(user, request.POST if is_sent else None)
    form.fields["new_password1"].help_text = _GOOD_PASSWORDS
    form.fields["new_password2"].help_text = ""
    active = ApiToken.objects.filter(user=user).active(now)
    if is_sent and user.has_usable_password() and form.is_valid():
        with transaction.atomic():
            form.save()
            update_session_auth_hash(request, user)
            count = _end_sessions(request, user)
            tokens = sum(map(revoke_token, active.select_related("user"))) if "tokens" in request.POST else 0
        ended = f" {format_plural(count, 'other session')} ended." if count else ""
        revoked = f" {format_plural(tokens, 'API token')} revoked." if tokens else ""
        messages.success(request, f"Password changed.{ended}{revoked}")
        return redirect("runs:account")
    context = {
        "form": form,
        "problems": [
            (field.id_for_label, str(field.label), " ".join(map(str, field.errors))) for field in form if field.errors
        ],
        "sessions": _list_sessions(request, user, now),
        "token_count": active.count(),
    }
    return render(request, "runs/account.html", context, status=422 if is_sent else 200)


@require_POST
@require_sign_in
def end_sessions(request: HttpRequest) -> HttpResponse:
    """Sign out other browsers: that of ``session``, or all of them."""
    user = get_user(request)
    with transaction.atomic():
        count = _end_sessions(request, user, request.POST.get("session", ""))
        if count:
            log_audit_event(action=AuditAction.SESSIONS_ENDED, about=user, details={"sessions": count})
    if count:
        messages.success(request, f"{format_plural(count, 'session')} ended.")
    else:
        messages.info(request, "That session had already ended.")
    return redirect("runs:account")


def _list_sessions(request: HttpRequest, user: User, now: datetime) -> Sequence[Mapping[str, Any]]:
    rows = BrowserSession.objects.filter(user=user, expire_date__gt=now).order_by("-expire_date")[:MAX_SESSIONS]
    sessions = []
    for row in rows:
        known: Mapping[str, Any] = row.get_decoded()
        since = datetime.fromisoformat(known[SINCE]) if known.get(SINCE) else None
        sessions.append({
            "reference": _hash_key(row.session_key),
            "browser": _name_browser(str(known.get(BROWSER) or "")),
            "address": str(known.get(ADDRESS) or ""),
            "since": since,
            "is_this": row.session_key == request.session.session_key,
        })  # fmt: skip
    return sessions


def _name_browser(text: str) -> str:
    """“Firefox on Windows”, or how an unknown browser names itself."""
    browser = next((name for sign, name in _BROWSERS if f"{sign}/" in text), "")
    system = next((sign for sign in _SYSTEMS if sign in text), "")
    return f"{browser} on {system}" if browser and system else text[:80]


def _hash_key(key: str) -> str:
    """What names a session to its owner: it can't be used to sign in."""
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def _end_sessions(request: HttpRequest, user: User, reference: str = "") -> int:
    """End the session that ``reference`` names, or all but this one; returns how many ended."""
    others = BrowserSession.objects.filter(user=user).exclude(session_key=request.session.session_key)
    keys = [key for key in others.values_list("session_key", flat=True) if reference in ("", _hash_key(key))]
    return BrowserSession.objects.filter(session_key__in=keys).delete()[0]
