"""One's own account: the password, and the browsers that are signed in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from runs.audit_log.events import AuditAction, log_audit_event
from runs.audit_log.sign_ins import ADDRESS, BROWSER, SINCE
from runs.formatting import format_age, format_plural
from runs.models import ApiToken, BrowserSession
from runs.pages.access import require_sign_in
from runs.pages.input_form import FormProblem
from runs.tokens import revoke_tokens

MAX_LISTED = 50
"""Sessions of one user that are listed, those that last longest first."""

_BROWSERS = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac", "Linux")


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A browser that is signed in. ``reference`` names the session to its owner; nobody can sign in with it."""

    reference: str
    browser: str
    address: str
    since: datetime | None
    age: str
    is_this: bool


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@require_sign_in
def show_account(request: HttpRequest) -> HttpResponse:
    """The user's account; a form that is sent changes the password, and signs out everywhere else."""
    user = get_user(request)
    form = PasswordChangeForm(user, request.POST if request.method == "POST" else None)
    active = ApiToken.objects.filter(user=user).active(timezone.now())
    if request.method == "POST" and user.has_usable_password() and form.is_valid():
        with transaction.atomic():
            form.save()
            update_session_auth_hash(request, user)
            count = _end_sessions(request, user)
            tokens = revoke_tokens(active.select_related("user")) if "tokens" in request.POST else 0
        ended = f" {format_plural(count, 'other session')} ended." if count else ""
        revoked = f" {format_plural(tokens, 'API token')} revoked." if tokens else ""
        messages.success(request, f"Password changed.{ended}{revoked}")
        return redirect("runs:account")
    context = {
        "form": form,
        "problems": [
            FormProblem(field.id_for_label, str(field.label), " ".join(map(str, field.errors)))
            for field in form
            if field.errors
        ],
        "sessions": _list_sessions(request, user),
        "token_count": active.count(),
    }
    return render(request, "runs/account.html", context, status=422 if request.method == "POST" else 200)


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


def get_user(request: HttpRequest) -> User:
    """The signed-in user of a page that needs one."""
    assert isinstance(request.user, User), "Anonymous requests are not let in."
    return request.user


def _list_sessions(request: HttpRequest, user: User) -> Sequence[SessionRow]:
    now = timezone.now()
    rows = BrowserSession.objects.filter(user=user, expire_date__gt=now).order_by("-expire_date")
    return [_describe(row, request.session.session_key, now) for row in rows[:MAX_LISTED]]


def _describe(row: BrowserSession, own_key: str | None, now: datetime) -> SessionRow:
    known: dict[str, Any] = row.get_decoded()
    since = datetime.fromisoformat(known[SINCE]) if known.get(SINCE) else None
    return SessionRow(
        reference=_hash_key(row.session_key),
        browser=_name_browser(str(known.get(BROWSER) or "")),
        address=str(known.get(ADDRESS) or ""),
        since=since,
        age=format_age(now - since) if since else "",
        is_this=row.session_key == own_key,
    )


def _name_browser(text: str) -> str:
    """“Firefox on Windows”, or how an unknown browser names itself."""
    browser = next((name for sign, name in _BROWSERS if f"{sign}/" in text), "")
    system = next((sign for sign in _SYSTEMS if sign in text), "")
    return f"{browser} on {system}" if browser and system else text[:80]


def _hash_key(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def _end_sessions(request: HttpRequest, user: User, reference: str = "") -> int:
    """End the session that ``reference`` names, or all but this one; returns how many ended."""
    others = BrowserSession.objects.filter(user=user).exclude(session_key=request.session.session_key)
    keys = [key for key in others.values_list("session_key", flat=True) if reference in ("", _hash_key(key))]
    return BrowserSession.objects.filter(session_key__in=keys).delete()[0]


urls: list[URLPattern] = [
    path("account/", show_account, name="account"),
    path("account/sessions/end/", end_sessions, name="end-sessions"),
]
