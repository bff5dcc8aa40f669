"""Whether the client of an event stream, which may last for 15 minutes, would still be let in."""

from __future__ import annotations

import time
from typing import Any

from django.db.models import Exists, Q
from django.http import HttpRequest
from django.utils import timezone

from runs.models import ApiToken, BrowserSession
from runs.signing_in import find_permissions

ASKED_EACH = 15.0
"""Seconds after which what was found out is asked anew."""

read_clock = time.monotonic


class Admission:
    """That whoever sent ``request`` was let in just now, for ``permission`` (``app.codename``), until it is otherwise.

    It ends with the token or the session that the request came with, with the account and with the permission; a
    session also with the password that it began with.
    """

    def __init__(self, request: HttpRequest, permission: str) -> None:
        token = getattr(request, "auth", None)
        self._token_key: Any = token.pk if isinstance(token, ApiToken) else None
        self._session_key = request.session.session_key if self._token_key is None else None
        user: Any = request.user
        self._user = {"user": user.pk, "user__is_active": True}
        self._password = user.password
        app, _, name = permission.partition(".")
        granted = find_permissions(user.pk).filter(content_type__app_label=app, codename=name)
        self._may = Q(user__is_superuser=True) | Exists(granted)
        self._holds = True
        self._asked_at = read_clock()

    def is_due(self) -> bool:
        """Whether ``holds`` would ask the database."""
        return self._holds and read_clock() - self._asked_at >= ASKED_EACH

    def holds(self) -> bool:
        """Whether they would be let in still, as of ``ASKED_EACH`` seconds ago at most. At most one query."""
        if self.is_due():
            self._holds = self._ask()
            self._asked_at = read_clock()
        return self._holds

    def _ask(self) -> bool:
        now = timezone.now()
        if self._token_key is not None:
            tokens = ApiToken.objects.active(now).filter(self._may, **self._user, pk=self._token_key)
            return bool(tokens.exists())
        sessions = BrowserSession.objects.filter(session_key=self._session_key, expire_date__gt=now)
        return sessions.filter(self._may, **self._user, user__password=self._password).exists()
