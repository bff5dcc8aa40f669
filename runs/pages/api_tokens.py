"""One's own tokens, by which scripts sign in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from runs.formatting import format_age, format_plural
from runs.models import ApiToken, TokenScope
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

_TOKEN_FIELDS = {"name": "Name", "scope": "Scope", "expires": "Expires after"}
_EXPIRIES = {"365d": "1 year", "never": "Never"}
"""Lifetimes that are not shown as a number of days."""


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
