"""Who is signed in: what every request asks the database first, in statements that are built once.

Sessions, accounts and permissions are read anew for each request: whoever is signed out, locked out or given less is so
at once, whatever process answers.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q, QuerySet
from django.utils import timezone

from runs.models import browser_session
from runs.prepared_select import PreparedSelect, build_row, list_columns


class SessionStore(browser_session.SessionStore):
    """The sessions of the pages. This module is Django’s ``SESSION_ENGINE``."""

    def load(self) -> dict[str, Any]:
        """What the session holds; nothing, and no key, if there is none or its time is over."""
        key = self.session_key or ""
        if not key.isalnum():
            # PostgreSQL refuses some of what may stand in a cookie.
            found = self.read_key()
        else:
            rows = _SESSIONS.fetch([key])
            found = next((dict(self.decode(data)) for data, end in rows if end > timezone.now()), {})
        if not found:
            self._session_key = None
        return found


class AccountBackend(ModelBackend):
    """Accounts and their permissions, as Django’s own backend knows them."""

    def get_user(self, user_id: int) -> User | None:
        """The account; None if there is none, or if it may not sign in."""
        for row in _ACCOUNTS.fetch([user_id]):
            user = build_row(User, row)
            return user if self.user_can_authenticate(user) else None
        return None

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """What the account may do, by itself and by its groups. One query for each object that stands for it."""
        if not isinstance(user_obj, User) or not user_obj.is_active or user_obj.is_superuser or obj is not None:
            return super().get_all_permissions(user_obj, obj)
        # The attribute that Django keeps them in while it answers a request.
        kept = vars(user_obj)
        if "_perm_cache" not in kept:
            kept["_perm_cache"] = {f"{app}.{name}" for app, name in _PERMISSIONS.fetch([user_obj.pk])}
        known: set[str] = kept["_perm_cache"]
        return known


def find_permissions(user_id: int) -> QuerySet[Permission]:
    """What an account may do that is no superuser, by itself and by its groups."""
    return Permission.objects.filter(
        Q(pk__in=User.user_permissions.through.objects.filter(user=user_id).values("permission"))
        | Q(pk__in=Group.permissions.through.objects.filter(group__user=user_id).values("permission"))
    )


_SESSIONS = PreparedSelect(
    lambda keys: browser_session.BrowserSession.objects.filter(session_key=keys[0]).values_list(
        "session_data", "expire_date"
    ),
    most=1,
    kind=str,
)
_ACCOUNTS = PreparedSelect(
    lambda ids: User.objects.filter(pk=ids[0]).values_list(*list_columns(User)),
    most=1,
)
_PERMISSIONS = PreparedSelect(
    lambda ids: find_permissions(ids[0]).order_by().values_list("content_type__app_label", "codename"),
    most=1,
)
