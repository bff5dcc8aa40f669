"""How users and scripts sign in: tokens for the REST API, of which a hash is stored, and identities at a provider."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
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
        """Revoke those that let somebody in; gives how many these were. Others keep what they are."""
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
        """Why it lets nobody in, in one sentence; empty if it does."""
        match self.find_state(now):
            case TokenState.CLOSED:
                return "The account of this token is closed."
            case TokenState.REVOKED:
                return f"The token “{self.name}” was revoked."
            case TokenState.EXPIRED:
                return f"The token “{self.name}” has expired. Create a new one on the page “API tokens”."
        return ""


class ProviderIdentity(models.Model):
    """The person behind an account, as the provider tells people apart: by a subject that it gives to nobody else.

    Addresses are given to others when somebody leaves; a subject never is.
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
