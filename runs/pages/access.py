"""Who may open which page, and the pages that ask first or say what was not done."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRedirect

_Arguments = ParamSpec("_Arguments")
_View = Callable[Concatenate[HttpRequest, _Arguments], HttpResponseBase]

NOTHING_DONE = "You are not signed in any more, so nothing was done. Sign in, and send the form again."

_WHAT = {
    "runs.view_run": "see runs",
    "runs.add_run": "start runs",
    "runs.change_run": "cancel runs",
    "runs.view_trailentry": "see the audit log",
    "flows.add_flow": "add flows",
    "flows.change_flow": "change flows",
    "flows.delete_flow": "delete flows",
    "runs.change_webhookendpoint": "change webhook endpoints",
}


def require_permission(*permissions: str) -> Callable[[_View[_Arguments]], _View[_Arguments]]:
    """Let in users who have ``permissions``; others get a 403 page that names one, strangers the sign-in page.

    After signing in they come back to the page they were on, also when only a part of it was asked for, or when they
    had sent a form: then a message says that nothing was done.
    """

    def decorate(view: _View[_Arguments]) -> _View[_Arguments]:
        # Runs are for those who may see them now: nothing stays in caches or behind the Back button of the next user.
        @never_cache
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _ask_to_sign_in(request)
            for permission in permissions:
                if not request.user.has_perm(permission):
                    raise PermissionDenied(f"You may not {_WHAT[permission]}: your account lacks “{permission}”.")
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def require_viewer(view: _View[_Arguments]) -> _View[_Arguments]:
    """A page, asked for by GET or HEAD, for all who may see runs."""
    return require_safe(require_permission("runs.view_run")(view))


def require_sign_in(view: _View[_Arguments]) -> _View[_Arguments]:
    """Let in all who are signed in; strangers get the sign-in page, as with ``require_permission``."""
    return require_permission()(view)


def get_user(request: HttpRequest) -> User:
    """The signed-in user of a page that needs one."""
    assert isinstance(request.user, User), "Anonymous requests are not let in."
    return request.user


def refuse(request: HttpRequest, heading: str, *, status: int = 400, **context: Any) -> HttpResponse:
    """The page that says what was not done, with its ``reason`` or its ``problems``.

    It leads ``back`` to ``back_url``, the list of runs if not given.
    """
    context = {"heading": heading, "back": "Back", "back_url": reverse("runs:list"), **context}
    return render(request, "runs/confirm_or_refuse.html", context, status=status)


def confirm(request: HttpRequest, action: str, subject: str, **context: str) -> HttpResponse:
    """The page that asks whether ``action`` should be done to ``subject``; its form is sent to this address.

    ``reason`` says what comes of it, ``icon_name`` shows it, and ``back`` leads to ``back_url``.
    """
    return render(request, "runs/confirm_or_refuse.html", {"action": action, "subject": subject, **context})


def _ask_to_sign_in(request: HttpRequest) -> HttpResponse:
    is_sent = request.method not in ("GET", "HEAD")
    if is_sent:
        messages.warning(request, NOTHING_DONE)
    if request.headers.get("HX-Request") == "true":
        page = _read_path(request.headers.get("HX-Current-URL", ""))
        return HttpResponseClientRedirect(redirect_to_login(page or "/").url)
    return redirect_to_login(_find_form(request) if is_sent else request.get_full_path())


def _find_form(request: HttpRequest) -> str:
    """The page that a form was sent from; the list of runs where the browser doesn't say.

    Many forms are sent to addresses that show nothing, and those that do would show the form without what was chosen.
    """
    sender = request.headers.get("Referer", "")
    is_ours = url_has_allowed_host_and_scheme(sender, {request.get_host()}, require_https=request.is_secure())
    return (_read_path(sender) if is_ours else "") or reverse("runs:list")


def _read_path(address: str) -> str:
    """An address without its host."""
    page = urlsplit(address)
    return page.path + (f"?{page.query}" if page.query else "")
