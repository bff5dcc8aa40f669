"""Sessions of the pages, which know whose they are: so they can be listed, and ended.

Anybody may begin any number of sessions without having signed in. So those are kept nowhere: what such a session holds
is in its cookie, signed. This module is Django’s ``SESSION_ENGINE``.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.contrib.sessions.base_session import AbstractBaseSession
from django.core import signing
from django.db import models

ANONYMOUS_AGE = 600
"""Seconds that a session lasts before somebody has signed in: on the way to a provider, and back."""
_CONTEXT = "toolflow: session of somebody who has not signed in"
"""Keeps what is signed here apart from all else that is."""


class BrowserSession(AbstractBaseSession):
    """Somebody’s visit with one browser, who has signed in."""

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
    """A session in a row of ``BrowserSession``, or in its key before somebody has signed in."""

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        """The model of the rows."""
        return BrowserSession

    def get_session_cookie_age(self) -> int:
        """Seconds from its last change that the session lasts."""
        return settings.SESSION_COOKIE_AGE if SESSION_KEY in self else ANONYMOUS_AGE

    def load(self) -> dict[str, Any]:
        """What the session holds; nothing, and no key, if there is none or it has expired."""
        # PostgreSQL refuses some of what may stand in a cookie.
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
        """Store the session: in a row if somebody has signed in, else in its key."""
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
