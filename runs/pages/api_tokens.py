"""The page on which users make tokens for their scripts, see how these are used, and revoke them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs.models import ApiToken, TokenScope
from runs.models.api_token import TokenState
from runs.pages.badges import Badge
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

SCOPES: tuple[tuple[str, str, str, str], ...] = (
    (
        TokenScope.READ,
        "Read",
        "See runs with their attempts, issues, usage and cost; see flows and statistics.",
        "runs.view_run",
    ),
    (TokenScope.RUN, "Run", "The same, and start, cancel and repeat runs.", "runs.add_run"),
    (TokenScope.EDIT, "Edit", "The same, and add and change flows and make versions live.", "flows.change_flow"),
)
"""Each scope with its word, what it allows, and a permission without which it allows less."""

EXPIRIES: Mapping[str, str] = {"365d": "A year", "never": "Never"}
"""Lifetimes that are no number of days in words."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token in the list."""

    token: ApiToken
    badge: Badge

    @property
    def shown_scope(self) -> str:
        return next(word for scope, word, _, _ in SCOPES if scope == self.token.scope)


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A token that was made just now, for this one answer."""

    name: str
    token: str
    command: str


@dataclass
class TokenForm:
    """What was typed, and what is wrong with it by field."""

    name: str = ""
    scope: str = TokenScope.READ
    expires: str = field(default_factory=find_default_lifetime)
    problems: dict[str, str] = field(default_factory=dict)


# The token stands in one answer: none may be kept.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def show_tokens(request: HttpRequest) -> HttpResponse:
    """The tokens of whoever is signed in; a form that is sent makes one, and the answer shows it, once."""
    user = _get_user(request)
    form, made = TokenForm(), None
    if request.method == "POST":
        sent = request.POST
        form = TokenForm(sent.get("name", ""), sent.get("scope", ""), sent.get("expires", ""))
        try:
            row, token = create_token(
                user=user, name=form.name, scope=form.scope, lifetime=parse_lifetime(form.expires)
            )
        except TokenRefusedError as refusal:
            form.problems[refusal.field] = str(refusal)
        else:
            # No redirect: it would have to carry the token through an address, a cookie or the session.
            made, form = MadeToken(row.name, token, _build_command(request, token)), TokenForm()
    now = timezone.now()
    active, ended = list_tokens(user, now)
    context = {
        "active": [_view(token, now) for token in active],
        "ended": [_view(token, now) for token in ended],
        "now": now,
        "form": form,
        "made": made,
        "longest_name": LONGEST_NAME,
        "scopes": [(scope, word, text, user.has_perm(needed)) for scope, word, text, needed in SCOPES],
        "expiries": [(text, EXPIRIES.get(text) or format_days(int(text[:-1]))) for text in list_lifetimes()],
    }
    return render(request, "runs/api_tokens.html", context, status=422 if form.problems else 200)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Ask whether to revoke one's own token, and do it."""
    token = fetch_token(_get_user(request), key)
    if token is None:
        raise Http404
    now = timezone.now()
    if request.method != "POST" and token.find_state(now) == TokenState.ACTIVE:
        return render(request, "runs/api_tokens_revoke.html", {"token": token, "now": now})
    if request.method == "POST" and revoke_token(token):
        messages.success(request, f"The token “{token.name}” is revoked. What uses it is refused from now on.")
    else:
        messages.info(request, f"The token “{token.name}” let nobody in any more.")
    return HttpResponseRedirect(reverse("runs:tokens"))


def _get_user(request: HttpRequest) -> User:
    user = request.user
    assert isinstance(user, User), "Strangers are not let in."
    return user


def _view(token: ApiToken, now: datetime) -> TokenRow:
    state = token.find_state(now)
    if state == TokenState.ACTIVE and token.expiry is not None and token.expiry - now <= EXPIRES_SOON:
        return TokenRow(token, _SOON)
    return TokenRow(token, STATES[state])


def _build_command(request: HttpRequest, token: str) -> str:
    """Shell commands that keep what all blocks of the guide read, and ask for the newest run."""
    path = reverse("api:run-list")
    place = path.index("/api/")
    site = request.build_absolute_uri(path[:place] or "/").rstrip("/")
    return (
        f"export TOOLFLOW_URL={shlex.quote(site)}\n"
        f"export TOOLFLOW_TOKEN={token}\n"
        f'curl -H "Authorization: Bearer $TOOLFLOW_TOKEN" "$TOOLFLOW_URL{path[place:]}?limit=1"'
    )


urls: list[URLPattern] = [
    path("tokens/", show_tokens, name="tokens"),
    path("tokens/<str:key>/revoke/", revoke, name="token-revoke"),
]
