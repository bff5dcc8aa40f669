"""One's own account: the password, the browsers that are signed in, and the tokens by which scripts sign in."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from runs.audit_log.events import AuditAction, log_audit_event
from runs.audit_log.sign_ins import ADDRESS, BROWSER, SINCE
from runs.formatting import format_age, format_plural
from runs.models import ApiToken, BrowserSession, TokenScope
from runs.models.account import TokenState
from runs.pages.access import confirm, get_user, require_sign_in
from runs.pages.badges import Badge
from runs.tokens import (
    MAX_NAME_LENGTH,
    TokenRefusedError,
    create_token,
    fetch_token,
    find_default_lifetime,
    list_lifetimes,
    list_tokens,
    parse_lifetime,
    revoke_token,
)

MAX_SESSIONS = 50
"""Sessions of one user that are listed, those that last longest first."""
EXPIRES_SOON = timedelta(days=7)

TOKEN_BADGES: Mapping[str, Badge] = {
    TokenState.ACTIVE: Badge("Active", "check-circle", "passed"),
    TokenState.EXPIRED: Badge("Expired", "clock", "quiet"),
    TokenState.REVOKED: Badge("Revoked", "no-symbol", "quiet"),
    TokenState.CLOSED: Badge("Account closed", "no-symbol", "quiet"),
    "soon": Badge("Expires soon", "exclamation-triangle", "errored"),
}
SCOPES: Mapping[str, tuple[str, str, str]] = {
    TokenScope.READ: (
        "Read",
        "View runs (inputs, outputs, attempts, issues, cost), flows, statistics, exports and webhook deliveries.",
        "runs.view_run",
    ),
    TokenScope.RUN: ("Run", "Read, and also start, cancel and re-run runs.", "runs.add_run"),
    TokenScope.EDIT: ("Edit", "Run, and also add and change flows and make versions live.", "flows.change_flow"),
}
"""Each scope with its word, what it allows, and a permission without which it allows less."""

_GOOD_PASSWORDS = "At least 8 characters, not only digits, not a common password, and not similar to your name."
_TOKEN_FIELDS = {"name": "Name", "scope": "Scope", "expires": "Expires after"}
_EXPIRIES = {"365d": "1 year", "never": "Never"}
"""Lifetimes that are not shown as a number of days."""
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
    """What names a session to its owner: nobody can sign in with it."""
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def _end_sessions(request: HttpRequest, user: User, reference: str = "") -> int:
    """End the session that ``reference`` names, or all but this one; returns how many ended."""
    others = BrowserSession.objects.filter(user=user).exclude(session_key=request.session.session_key)
    keys = [key for key in others.values_list("session_key", flat=True) if reference in ("", _hash_key(key))]
    return BrowserSession.objects.filter(session_key__in=keys).delete()[0]


@require_http_methods(["GET", "HEAD", "POST"])
@require_sign_in
def show_tokens(request: HttpRequest) -> HttpResponse:
    """The user's tokens; a form that is sent creates one, and the answer shows it, once."""
    user, sent = get_user(request), request.POST
    default = {"name": "", "scope": str(TokenScope.READ), "expires": find_default_lifetime()}
    typed, created, problems, errors = default, None, [], {}
    if request.method == "POST":
        typed = {name: sent.get(name, "") for name in _TOKEN_FIELDS}
        try:
            lifetime = parse_lifetime(typed["expires"])
            row, token = create_token(user=user, name=typed["name"], scope=typed["scope"], lifetime=lifetime)
        except TokenRefusedError as refusal:
            problems = [(f"token-{refusal.field}", _TOKEN_FIELDS[refusal.field], str(refusal))]
            errors = {refusal.field: [str(refusal)]}
        else:
            # No redirect: it would have to carry the token through an address, a cookie or the session.
            created = {"name": row.name, "token": token, "command": _build_command(request, token)}
            typed = default
    now = timezone.now()
    lists = zip(("Active", "Expired and revoked"), list_tokens(user, now), strict=True)
    context = {
        "lists": [(title, [_describe_token(token, now) for token in tokens]) for title, tokens in lists],
        "typed": typed,
        "problems": problems,
        "errors": errors,
        "created": created,
        "max_name_length": MAX_NAME_LENGTH,
        "scopes": [(scope, word, text, user.has_perm(needed)) for scope, (word, text, needed) in SCOPES.items()],
        "expiries": [(text, _EXPIRIES.get(text) or format_plural(int(text[:-1]), "day")) for text in list_lifetimes()],
    }
    return render(request, "runs/api_tokens.html", context, status=422 if problems else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@require_sign_in
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Ask whether to revoke one's own token, and do it."""
    token = fetch_token(get_user(request), key)
    if token is None:
        raise Http404
    now = timezone.now()
    if request.method != "POST" and token.find_state(now) == TokenState.ACTIVE:
        used = "It has never been used."
        if token.last_used_at is not None:
            used = f"It was last used {format_age(now - token.last_used_at)} ago."
        return confirm(
            request,
            "Revoke token",
            token.name,
            reason=f"Requests with it are refused from then on. This can’t be undone. {used}",
            icon_name="no-symbol",
            back="Keep it",
            back_url=reverse("runs:tokens"),
        )
    if request.method == "POST" and revoke_token(token):
        messages.success(request, f"Token “{token.name}” revoked. Requests with it are refused from now on.")
    else:
        messages.info(request, f"Token “{token.name}” was not active any more.")
    return redirect("runs:tokens")


def _describe_token(token: ApiToken, now: datetime) -> dict[str, Any]:
    state = token.find_state(now)
    is_soon = state == TokenState.ACTIVE and token.expiry is not None and token.expiry - now <= EXPIRES_SOON
    return {
        "token": token,
        "scope": SCOPES[token.scope][0],
        "badge": TOKEN_BADGES["soon" if is_soon else state],
    }


def _build_command(request: HttpRequest, token: str) -> str:
    """Shell commands that set what all blocks of the guide use, and ask for the newest run."""
    path = reverse("api:list_runs")
    start = path.index("/api/")
    site = request.build_absolute_uri(path[:start] or "/").rstrip("/")
    return (
        f"export TOOLFLOW_URL={shlex.quote(site)}\n"
        f"export TOOLFLOW_TOKEN={token}\n"
        f'curl -H "Authorization: Bearer $TOOLFLOW_TOKEN" "$TOOLFLOW_URL{path[start:]}?limit=1"'
    )
