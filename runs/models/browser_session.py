"""Sessions of the pages, which know whose they are: so they can be listed, and ended.

``runs.signing_in`` reads them, and is Django’s ``SESSION_ENGINE``.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

ANONYMOUS_AGE = 600
"""Seconds that a session lasts before somebody has signed in: on the way to a provider, and back."""


class BrowserSession(AbstractBaseSession):
    """Somebody’s visit with one browser; without a user before they have signed in."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
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
    """A session in a row of ``BrowserSession``."""

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        """The model of the rows."""
        return BrowserSession

    def get_session_cookie_age(self) -> int:
        """Seconds from its last change that the session lasts: anybody may begin any number of those without a user."""
        return settings.SESSION_COOKIE_AGE if SESSION_KEY in self else min(ANONYMOUS_AGE, settings.SESSION_COOKIE_AGE)

    def create_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        """The row for the session as it is now."""
        row = super().create_model_instance(data)
        assert isinstance(row, BrowserSession), "Rows are of the model above."
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        return row
