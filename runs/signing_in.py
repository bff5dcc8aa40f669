"""Who is signed in, and what accounts may do, read for each request: a user who is signed out is so at once."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q, QuerySet

from runs.models import browser_session


class SessionStore(browser_session.SessionStore):
    """The sessions of the pages. This module is Django’s ``SESSION_ENGINE``."""

    def load(self) -> dict[str, Any]:
        """What the session holds; nothing, and no key, if there is none or it has expired."""
        # PostgreSQL refuses some of what may stand in a cookie.
        found: dict[str, Any] = super().load() if (self.session_key or "").isalnum() else self.read_key()
        if not found:
            self._session_key = None
        return found


class AccountBackend(ModelBackend):
    """Accounts and their permissions as Django's own backend knows them, with one query for all permissions."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """The permissions of the account and of its groups."""
        if not isinstance(user_obj, User) or not user_obj.is_active or user_obj.is_superuser or obj is not None:
            return super().get_all_permissions(user_obj, obj)
        # The attribute that Django keeps them in while it answers a request.
        kept = vars(user_obj)
        if "_perm_cache" not in kept:
            rows = find_permissions(user_obj.pk).order_by().values_list("content_type__app_label", "codename")
            kept["_perm_cache"] = {f"{app}.{name}" for app, name in rows}
        known: set[str] = kept["_perm_cache"]
        return known


def find_permissions(user_id: int) -> QuerySet[Permission]:
    """The permissions of an account that is no superuser, and of its groups."""
    return Permission.objects.filter(
        Q(pk__in=User.user_permissions.through.objects.filter(user=user_id).values("permission"))
        | Q(pk__in=Group.permissions.through.objects.filter(group__user=user_id).values("permission"))
    )
