"""Who may ask what: users by their permissions, tokens by their scope as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission

from runs.models import ApiToken, TokenScope

if TYPE_CHECKING:
    from rest_framework.request import Request

    from runs.api.view import ApiView


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs: permissions of its user and, if a token was sent, at least this scope."""

    permission: str
    scope: TokenScope
    more: tuple[str, ...] = ()
    """Permissions that it needs besides."""


SEE_RUNS = Need("runs.view_run", TokenScope.READ)
START_RUNS = Need("runs.add_run", TokenScope.RUN)
REPEAT_RUNS = Need("runs.add_run", TokenScope.RUN, ("runs.view_run",))
"""Whoever starts a run knows its input, but not that of a run that is there. What answers a change shows all that
reading does, so that each change takes the permission to read as well.
"""
CHANGE_AND_SEE_RUNS = Need("runs.change_run", TokenScope.RUN, ("runs.view_run",))
CANCEL_RUNS = CHANGE_AND_SEE_RUNS
ACT_ON_RUNS = Need("runs.view_run", TokenScope.RUN)
"""What is done to many runs; what exactly that takes depends on what it is."""
KEEP_VIEWS = Need("runs.view_run", TokenScope.RUN)
SEE_TRAIL = Need("runs.view_trailentry", TokenScope.READ)
SEE_FLOWS = Need("flows.view_flow", TokenScope.READ)
ADD_FLOWS = Need("flows.add_flow", TokenScope.EDIT, ("flows.view_flow",))
CHANGE_FLOWS = Need("flows.change_flow", TokenScope.EDIT, ("flows.view_flow",))
DELETE_FLOWS = Need("flows.delete_flow", TokenScope.EDIT, ("flows.delete_flowversion", "flows.view_flow"))
"""Its versions go along."""
DELETE_VERSIONS = Need("flows.delete_flowversion", TokenScope.EDIT, ("flows.view_flow",))


class HasNeed(BasePermission):
    """Lets through who has what the endpoint names for the method."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """True. Raises ``NotAuthenticated`` or ``PermissionDenied`` with a sentence for whoever is kept out."""
        endpoint: ApiView = view
        if not request.user.is_authenticated:
            raise NotAuthenticated("Send a token as “Authorization: Bearer tf_…”. The page “API tokens” makes them.")
        need = endpoint.needs.get("GET" if request.method == "HEAD" else str(request.method))
        if need is None:
            return True
        token = request.auth
        if isinstance(token, ApiToken) and not token.allows(need.scope):
            raise PermissionDenied(
                f"The token “{token.name}” may only {TokenScope(token.scope).label.lower()}; "
                f"this needs a token with the scope “{need.scope}”."
            )
        for permission in (need.permission, *need.more):
            require_permission(request, permission)
        return True


def require_permission(request: Request, permission: str) -> None:
    """Raise ``PermissionDenied`` with a sentence if whoever asks lacks it."""
    if not request.user.has_perm(permission):
        raise PermissionDenied(f"Your account lacks the permission “{permission}”.")
