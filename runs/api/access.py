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
    """What a request needs: a permission of its user and, if a token was sent, at least this scope."""

    permission: str
    scope: TokenScope


SEE_RUNS = Need("runs.view_run", TokenScope.READ)
START_RUNS = Need("runs.add_run", TokenScope.RUN)
CANCEL_RUNS = Need("runs.change_run", TokenScope.RUN)
SEE_FLOWS = Need("flows.view_flow", TokenScope.READ)
ADD_FLOWS = Need("flows.add_flow", TokenScope.EDIT)
CHANGE_FLOWS = Need("flows.change_flow", TokenScope.EDIT)


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
        if not request.user.has_perm(need.permission):
            raise PermissionDenied(f"Your account lacks the permission “{need.permission}”.")
        return True
