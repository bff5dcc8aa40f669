"""Making, listing and revoking tokens for the API: what the page of tokens and the command line share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from runs.audit_log.events import AuditAction, log_audit_event
from runs.formatting import format_plural
from runs.models import ApiToken, TokenScope

MAX_NAME_LENGTH = 100
MAX_LIFETIME = timedelta(days=3650)
MAX_ACTIVE = 50
"""Active tokens that one user may have."""
MAX_LISTED = 200
"""Tokens of one user that are listed, of those that are active and of the others: the newest."""

LIFETIMES: Mapping[str, timedelta | None] = {
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "365d": timedelta(days=365),
    "never": None,
}
"""How long a token lasts, as forms offer it and the command line takes it; there it can be any number of days."""
DEFAULT_LIFETIME = "90d"
"""The usual one, where the installation allows it."""


class TokenRefusedError(ValueError):
    """A token that can't be made. ``field`` says what is wrong (``name``, ``scope`` or ``expires``), the text why."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def list_lifetimes() -> list[str]:
    """The lifetimes that forms offer: those that the installation allows, and the longest that it does."""
    most = settings.TOOLFLOW_TOKEN_MAX_DAYS
    if most is None:
        return list(LIFETIMES)
    allowed = [text for text, lifetime in LIFETIMES.items() if lifetime is not None and lifetime.days <= most]
    return allowed if f"{most}d" in allowed else [*allowed, f"{most}d"]


def find_default_lifetime() -> str:
    """What is offered first: the default, or the longest that the installation allows."""
    offered = list_lifetimes()
    return DEFAULT_LIFETIME if DEFAULT_LIFETIME in offered else offered[-1]


def parse_lifetime(text: str) -> timedelta | None:
    """``90d`` as a length of time, ``never`` as None. Raises ``TokenRefusedError`` for anything else."""
    if text in LIFETIMES:
        return LIFETIMES[text]
    days = text.removesuffix("d")
    if days != text and days.isascii() and days.isdigit() and len(days) < 6:
        lifetime = timedelta(days=int(days))
        if timedelta(0) < lifetime <= MAX_LIFETIME:
            return lifetime
    most = settings.TOOLFLOW_TOKEN_MAX_DAYS
    right = f"“90d” for 90 days (at most {MAX_LIFETIME.days}), or “never”"
    if most is not None:
        right = f"“{most}d” for {format_plural(most, 'day')}, the longest that is allowed here"
    raise TokenRefusedError("expires", f"“{text[:40]}” is not an expiry. Write {right}.")


def create_token(*, user: User, name: str, scope: str, lifetime: timedelta | None) -> tuple[ApiToken, str]:
    """Make a token for ``user``; gives its row, and what is sent, which can't be read later.

    ``lifetime`` is how long it lasts, None for ever. Raises ``TokenRefusedError``, one at a time.
    """
    name = " ".join(name.split())
    if not name:
        raise TokenRefusedError("name", "Enter a name that says what will use the token.")
    if len(name) > MAX_NAME_LENGTH:
        raise TokenRefusedError(
            "name", f"The name of a token has at most {MAX_NAME_LENGTH} characters; this one has {len(name)}."
        )
    if not name.isprintable():
        raise TokenRefusedError("name", "The name of a token can’t have invisible characters.")
    if scope not in TokenScope.values:
        known = ", ".join(f"“{value}”" for value in TokenScope.values)
        raise TokenRefusedError("scope", f"“{scope[:40]}” is not a scope. Use one of {known}.")
    most = settings.TOOLFLOW_TOKEN_MAX_DAYS
    if most is not None and (lifetime is None or lifetime > timedelta(days=most)):
        raise TokenRefusedError(
            "expires", f"Tokens are valid for at most {format_plural(most, 'day')} here. Choose an earlier expiry."
        )
    with transaction.atomic():
        # A form that is sent twice must not leave a second token that no user has seen: one after the other.
        User.objects.select_for_update().get(pk=user.pk)
        active = ApiToken.objects.filter(user=user).active(timezone.now())
        names = set(active.values_list("name", flat=True))
        if name in names:
            raise TokenRefusedError(
                "name", f"You already have an active token “{name}”. Revoke it first, or choose another name."
            )
        if len(names) >= MAX_ACTIVE:
            raise TokenRefusedError("name", f"You already have {MAX_ACTIVE} active tokens. Revoke one first.")
        row, token = ApiToken.objects.create(user=user, name=name, scope=scope, expiry=lifetime)
    return row, str(token)


def list_tokens(user: User, now: datetime) -> tuple[Sequence[ApiToken], Sequence[ApiToken]]:
    """The active tokens of ``user``, then those that expired or were revoked; each the newest first. Two queries."""
    own = ApiToken.objects.select_related("user").filter(user=user).order_by("-created")
    return list(own.active(now)[:MAX_LISTED]), list(own.ended(now)[:MAX_LISTED])


def fetch_token(user: User, key: str) -> ApiToken | None:
    """The token of ``user`` that begins with ``key``, as ``token_key`` gives it; None for those of others."""
    found: ApiToken | None = ApiToken.objects.select_related("user").filter(user=user, token_key=key).first()
    return found


def revoke_token(token: ApiToken) -> bool:
    """Revoke a token, whose owner must be loaded, from now on. False if it had ended already."""
    with transaction.atomic():
        count: int = ApiToken.objects.filter(pk=token.pk).revoke(timezone.now())
        if count:
            details = {"of": token.user.get_username(), "scope": token.scope}
            log_audit_event(action=AuditAction.TOKEN_REVOKED, kind="apitoken", label=token.name, details=details)
    return count == 1
