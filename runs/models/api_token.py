"""Tokens by which scripts sign in to the REST API. Only a hash of each is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from knox.models import AbstractAuthToken


class TokenScope(models.TextChoices):
    """What a token may be used for at most; each scope holds those before it. Its owner's permissions apply as well."""

    READ = "read", "Read"
    RUN = "run", "Read, start and cancel runs"
    EDIT = "edit", "Read, start and cancel runs, and change flows"


class ApiToken(AbstractAuthToken):  # type: ignore[misc]  # knox ships no types
    """A token of a user, named by them. It stays in their list after it expired or was revoked."""

    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=TokenScope, default=TokenScope.READ)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created"]
        constraints = [
            models.CheckConstraint(condition=models.Q(scope__in=TokenScope.values), name="token_scope_known"),
        ]

    def __str__(self) -> str:
        return self.name

    def allows(self, scope: str) -> bool:
        """Whether the token's scope holds ``scope``."""
        values: list[Any] = TokenScope.values
        return values.index(self.scope) >= values.index(scope)

    def find_problem(self, now: datetime) -> str:
        """Why it lets nobody in, in one sentence; empty if it does."""
        if not self.user.is_active:
            return "The account of this token is closed."
        if self.revoked_at is not None:
            return f"The token “{self.name}” was revoked."
        if self.expiry is not None and self.expiry <= now:
            return f"The token “{self.name}” has expired. Make a new one on the page “API tokens”."
        return ""
