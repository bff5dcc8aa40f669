"""How users and scripts are known: sessions of browsers, tokens of the REST API, identities at a provider.

This module is Django’s ``SESSION_ENGINE``. Anybody may begin any number of sessions without having signed in. So those
are kept nowhere: what such a session holds is in its cookie, signed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.contrib.sessions.base_session import AbstractBaseSession
from django.core import signing
from django.db import models
from django.db.models.functions import Now
from knox.models import AbstractAuthToken, AuthTokenManager


class TokenScope(models.TextChoices):
    """What a token may be used for at most; each scope holds those before it. Its owner's permissions apply as well."""

    READ = "read", "Read"
    RUN = "run", "Read, start and cancel runs"
    EDIT = "edit", "Read, start and cancel runs, and change flows"


class TokenState(models.TextChoices):
    """What has become of a token."""

    ACTIVE = "active", "Active"
    EXPIRED = "expired", "Expired"
    REVOKED = "revoked", "Revoked"
    CLOSED = "closed", "Account closed"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Tokens, chosen by what they are good for."""

    def active(self, now: datetime) -> ApiTokenQuerySet:
        """Those that neither expired nor were revoked."""
        return self.filter(_is_active(now))

    def ended(self, now: datetime) -> ApiTokenQuerySet:
        """Those that expired or were revoked."""
        return self.exclude(_is_active(now))

    def revoke(self, now: datetime) -> int:
        """Revoke those that are active; gives how many these were. Others keep what they are."""
        return self.active(now).update(revoked_at=now)


def _is_active(now: datetime) -> models.Q:
    return models.Q(revoked_at=None) & (models.Q(expiry=None) | models.Q(expiry__gt=now))


class ApiToken(AbstractAuthToken):  # type: ignore[misc]  # knox ships no types
    """A token of a user, named by them. It stays in their list after it expired or was revoked."""

    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=TokenScope, default=TokenScope.READ)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = AuthTokenManager.from_queryset(ApiTokenQuerySet)()

    class Meta:
        ordering = ["-created"]
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(condition=models.Q(scope__in=TokenScope.values), name="token_scope_known"),
        ]

    def __str__(self) -> str:
        return self.name

    def allows(self, scope: str) -> bool:
        """Whether the token's scope holds ``scope``."""
        values: list[Any] = TokenScope.values
        return values.index(self.scope) >= values.index(scope)

    def find_state(self, now: datetime) -> TokenState:
        """What has become of it. Its owner must be loaded."""
        if not self.user.is_active:
            return TokenState.CLOSED
        if self.revoked_at is not None:
            return TokenState.REVOKED
        if self.expiry is not None and self.expiry <= now:
            return TokenState.EXPIRED
        return TokenState.ACTIVE

    def find_problem(self, now: datetime) -> str:
        """Why it is refused, in one sentence; empty if it isn’t."""
        match self.find_state(now):
            case TokenState.CLOSED:
                return "The account of this token is closed."
            case TokenState.REVOKED:
                return f"The token “{self.name}” was revoked."
            case TokenState.EXPIRED:
                return f"The token “{self.name}” has expired. Create a new one on the page “API tokens”."
        return ""


class ProviderIdentity(models.Model):
    """The person behind an account, as the provider identifies people: by a subject that it gives to no other user.

    Addresses are given to others when a user leaves; a subject never is.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="provider_identities")
    issuer = models.CharField(max_length=400)
    subject = models.CharField(max_length=255)
    linked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_of_a_subject"),
            models.UniqueConstraint(fields=["issuer", "user"], name="one_subject_of_an_account"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


ANONYMOUS_AGE = 600
"""Seconds that a session lasts before a user has signed in: on the way to a provider, and back."""
_CONTEXT = "toolflow: session of somebody who has not signed in"
"""Keeps what is signed here apart from all else that is."""


class BrowserSession(AbstractBaseSession):
    """A user’s visit with one browser."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        # A request that began before an account was deleted may end after it.
        db_constraint=False,
        on_delete=models.CASCADE,
        related_name="browser_sessions",
    )

    class Meta(AbstractBaseSession.Meta):
        default_permissions = ()

    @classmethod
    def get_session_store_class(cls) -> type[SessionStore]:
        """What reads and writes these rows."""
        return SessionStore


class SessionStore(DatabaseSessions):
    """A session in a row of ``BrowserSession``, or in its key before a user has signed in."""

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        """The model of the rows."""
        return BrowserSession

    def get_session_cookie_age(self) -> int:
        """Seconds from its last change that the session lasts."""
        return settings.SESSION_COOKIE_AGE if SESSION_KEY in self else ANONYMOUS_AGE

    def load(self) -> dict[str, Any]:
        """What the session holds; nothing, and no key, if there is none or it has expired."""
        # PostgreSQL refuses some of what may be in a cookie.
        found: dict[str, Any] = super().load() if (self.session_key or "").isalnum() else self.read_key()
        if not found:
            self._session_key = None
        return found

    def read_key(self) -> dict[str, Any]:
        """What the key itself holds; nothing if it names a row, was not signed here, or its time is over."""
        try:
            found: dict[str, Any] = signing.loads(
                self.session_key or "", salt=_CONTEXT, serializer=self.serializer, max_age=ANONYMOUS_AGE
            )
        except (signing.BadSignature, ValueError):
            return {}
        return found

    def save(self, must_create: bool = False) -> None:
        """Store the session: in a row if a user has signed in, else in its key."""
        data = self._get_session(no_load=must_create)  # type: ignore[attr-defined]  # the stubs leave it out
        if SESSION_KEY not in data:
            self._session_key = signing.dumps(data, salt=_CONTEXT, serializer=self.serializer, compress=True)
        elif must_create or (self.session_key or "").isalnum():
            super().save(must_create)
        else:
            self.create()

    def create_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        """The row for the session as it is now."""
        row = super().create_model_instance(data)
        assert isinstance(row, BrowserSession), "Rows are of the model above."
        row.user_id = int(data[SESSION_KEY])
        return row


class IdempotentRequest(models.Model):
    """One request that makes something, by the key that its user gave it. Kept for a day."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(
        max_length=64, help_text="HMAC-SHA-256 of method, address and body, with the secret key."
    )
    status = models.PositiveSmallIntegerField(null=True, help_text="HTTP status of the answer; none while it is made.")
    headers = models.JSONField(default=dict)
    body = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_once")]
        indexes = [models.Index(fields=["created_at"], name="idempotent_by_creation")]

    def __str__(self) -> str:
        return self.key
