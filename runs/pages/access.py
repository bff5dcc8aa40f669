"""Who may open which page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.cache import never_cache
from django_htmx.http import HttpResponseClientRedirect

_Arguments = ParamSpec("_Arguments")
_View = Callable[Concatenate[HttpRequest, _Arguments], HttpResponseBase]

_WHAT = {
    "runs.view_run": "see runs",
    "runs.add_run": "start runs",
    "runs.change_run": "cancel runs",
    "runs.view_trailentry": "see the trail",
}


def require_permission(permission: str) -> Callable[[_View[_Arguments]], _View[_Arguments]]:
    """Let in users who have ``permission``; others get a 403 page that names it, strangers the sign-in page.

    After signing in they come back to the page they were on, also when only a part of it was asked for.
    """

    def decorate(view: _View[_Arguments]) -> _View[_Arguments]:
        # Runs are for those who may see them now: nothing stays in caches or behind the Back button of the next user.
        @never_cache
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _ask_to_sign_in(request)
            if not request.user.has_perm(permission):
                raise PermissionDenied(f"You may not {_WHAT[permission]}: your account lacks “{permission}”.")
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def _ask_to_sign_in(request: HttpRequest) -> HttpResponse:
    if request.headers.get("HX-Request") != "true":
        return redirect_to_login(request.get_full_path())
    page = urlsplit(request.headers.get("HX-Current-URL", ""))
    path = page.path + (f"?{page.query}" if page.query else "")
    return HttpResponseClientRedirect(redirect_to_login(path or "/").url)
