"""Who may open which page of the editor."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase

_Arguments = ParamSpec("_Arguments")
_View = Callable[Concatenate[HttpRequest, _Arguments], HttpResponseBase]

_WHAT = {
    "flows.view_flow": "see flows",
    "flows.add_flow": "add flows",
    "flows.change_flow": "change flows",
    "flows.delete_flow": "delete flows",
    "flows.view_flowversion": "see versions of flows",
    "runs.view_run": "see runs",
    "runs.add_run": "start runs",
}


def has_permission(request: HttpRequest, permission: str) -> bool:
    """Whether the user has ``permission``; who may change something may see it, as everywhere in the admin."""
    stronger = permission.replace(".view_", ".change_")
    return request.user.has_perm(permission) or request.user.has_perm(stronger)


def require_permission(permission: str) -> Callable[[_View[_Arguments]], _View[_Arguments]]:
    """Let in users who have ``permission``; others get a 403 page that names it.

    For views that ``AdminSite.admin_view`` guards already: it sends strangers to the sign-in page.
    """

    def decorate(view: _View[_Arguments]) -> _View[_Arguments]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> HttpResponseBase:
            if not has_permission(request, permission):
                what = _WHAT.get(permission, "open this page")
                raise PermissionDenied(f"You may not {what}: your account lacks “{permission}”.")
            return view(request, *args, **kwargs)

        return guarded

    return decorate
