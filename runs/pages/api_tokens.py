"""The page on which users create tokens for their scripts, see how these are used, and revoke them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs.formatting import format_age
from runs.models import ApiToken, TokenScope
from runs.models.api_token import TokenState
from runs.pages.account import get_user
from runs.pages.badges import Badge
from runs.pages.input_form import FormProblem
from runs.tokens import (
    LONGEST_NAME,
    TokenRefusedError,
    create_token,
    fetch_token,
    find_default_lifetime,
    format_days,
    list_lifetimes,
    list_tokens,
    parse_lifetime,
    revoke_token,
)

EXPIRES_SOON = timedelta(days=7)

STATES: Mapping[str, Badge] = {
    TokenState.ACTIVE: Badge("Active", "check-circle", "passed"),
    TokenState.EXPIRED: Badge("Expired", "clock", "quiet"),
    TokenState.REVOKED: Badge("Revoked", "no-symbol", "quiet"),
    TokenState.CLOSED: Badge("Account closed", "no-symbol", "quiet"),
}
_SOON = Badge("Expires soon", "exclamation-triangle", "errored")

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

_FIELDS = {"name": "Name", "scope": "Scope", "expires": "Expires after"}
_EXPIRIES = {"365d": "1 year", "never": "Never"}
"""Lifetimes that are not shown as a number of days."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token in the list."""

    name: str
    key: str
    scope: str
    badge: Badge
    used_at: datetime | None
    used_ago: str
    expires_at: datetime | None
    created_at: datetime


# The answer holds the token: it must not be cached.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def show_tokens(request: HttpRequest) -> HttpResponse:
    """The user's tokens; a form that is sent creates one, and the answer shows it, once."""
    user, sent = get_user(request), request.POST
    default = {"name": "", "scope": str(TokenScope.READ), "expires": find_default_lifetime()}
    typed, created, problems = default, None, []
    if request.method == "POST":
        typed = {name: sent.get(name, "") for name in _FIELDS}
        try:
            lifetime = parse_lifetime(typed["expires"])
            row, token = create_token(user=user, name=typed["name"], scope=typed["scope"], lifetime=lifetime)
        except TokenRefusedError as refusal:
            problems = [FormProblem(f"token-{refusal.field}", _FIELDS[refusal.field], str(refusal))]
        else:
            # No redirect: it would have to carry the token through an address, a cookie or the session.
            created = {"name": row.name, "token": token, "command": _build_command(request, token)}
            typed = default
    now = timezone.now()
    active, ended = list_tokens(user, now)
    context = {
        "active": [_build_row(token, now) for token in active],
        "ended": [_build_row(token, now) for token in ended],
        "typed": typed,
        "problems": problems,
        "created": created,
        "longest_name": LONGEST_NAME,
        "scopes": [(scope, word, text, user.has_perm(needed)) for scope, (word, text, needed) in SCOPES.items()],
        "expiries": [(text, _EXPIRIES.get(text) or format_days(int(text[:-1]))) for text in list_lifetimes()],
    }
    return render(request, "runs/api_tokens.html", context, status=422 if problems else 200)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Ask whether to revoke one's own token, and do it."""
    token = fetch_token(get_user(request), key)
    if token is None:
        raise Http404
    now = timezone.now()
    if request.method != "POST" and token.find_state(now) == TokenState.ACTIVE:
        return render(request, "runs/api_tokens_revoke.html", {"token": _build_row(token, now)})
    if request.method == "POST" and revoke_token(token):
        messages.success(request, f"Token “{token.name}” revoked. Requests with it are refused from now on.")
    else:
        messages.info(request, f"Token “{token.name}” was not active any more.")
    return redirect("runs:tokens")


def _build_row(token: ApiToken, now: datetime) -> TokenRow:
    state = token.find_state(now)
    is_soon = state == TokenState.ACTIVE and token.expiry is not None and token.expiry - now <= EXPIRES_SOON
    return TokenRow(
        name=token.name,
        key=token.token_key,
        scope=SCOPES[token.scope][0],
        badge=_SOON if is_soon else STATES[state],
        used_at=token.last_used_at,
        used_ago=format_age(now - token.last_used_at) if token.last_used_at else "",
        expires_at=token.expiry,
        created_at=token.created,
    )


def _build_command(request: HttpRequest, token: str) -> str:
    """Shell commands that set what all blocks of the guide use, and ask for the newest run."""
    path = reverse("api:run-list")
    start = path.index("/api/")
    site = request.build_absolute_uri(path[:start] or "/").rstrip("/")
    return (
        f"export TOOLFLOW_URL={shlex.quote(site)}\n"
        f"export TOOLFLOW_TOKEN={token}\n"
        f'curl -H "Authorization: Bearer $TOOLFLOW_TOKEN" "$TOOLFLOW_URL{path[start:]}?limit=1"'
    )


urls: list[URLPattern] = [
    path("tokens/", show_tokens, name="tokens"),
    path("tokens/<str:key>/revoke/", revoke, name="token-revoke"),
]
