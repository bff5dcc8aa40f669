"""Signing in with a password: the form, and the limits on wrong passwords.

``django-axes`` counts failures in three ways: for a name from an address, for the address, and for the name. The first
bounds guessing one password; the second guessing one password for many names; the third guessing from many addresses,
and its limit is high, since reaching it keeps a user out. Failures of users who come back from a provider of OpenID
Connect count for the address alone. A wrong old password, where a new one is set, counts like one to sign in with: a
browser that was left signed in must not be of use to find it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_cool_off
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.crypto import salted_hmac

from runs.audit_log.actor import find_address, find_place
from runs.audit_log.events import AuditAction, log_audit_event
from runs.formatting import format_plural
from runs.pages.access import refuse

SCALE = (1, 10, 20)
"""How many times ``AXES_FAILURE_LIMIT`` a name from one address, an address, and a name may fail; in the order of
``AXES_LOCKOUT_PARAMETERS``."""

BY_PROVIDER = "(sign-in provider)"
"""The name under which failures of those who come back from a provider are counted; no user's can be like this."""

OLD_PASSWORD_FORMS = frozenset({"runs:account", "admin:password_change"})
"""Where users set a new password and give the old one."""


class SignInThrottle(AxesDatabaseHandler):  # type: ignore[misc]  # axes ships no types
    """Counts failures, each way against a limit of its own."""

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Failures in the last minutes, scaled so that any limit is reached at ``AXES_FAILURE_LIMIT``."""
        counters = list(zip(self.get_user_attempts(request, credentials), SCALE, strict=True))
        if _is_by_provider(credentials):
            # A user who comes back from a provider guesses for no name, and must keep no others out.
            counters = counters[1:2]
        counts = [
            (attempts.aggregate(count=Sum("failures_since_start"))["count"], scale) for attempts, scale in counters
        ]
        return max((count or 0) // scale for count, scale in counts)

    def reset_user_attempts(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Forget the failures of this name from this address only: an account must not help to guess for others."""
        own: QuerySet[AccessAttempt] = self.filter_user_attempts(request, credentials)[0]
        count, _ = own.delete()
        return count

    def reset_attempts(self, **which: Any) -> int:
        """Lift lock-outs, for a command: all of them, or those of ``ip_address`` and ``username``."""
        if which.get("ip_address"):
            which["ip_address"] = find_place(which["ip_address"])
        with transaction.atomic():
            count: int = super().reset_attempts(**which)
            if count:
                name, address = which.get("username"), which.get("ip_address")
                user = User.objects.filter(username=name).first() if name else None
                details = {"counters": count, **({"of_address": str(address)} if address else {})}
                log_audit_event(action=AuditAction.LOCKOUT_LIFTED, about=user, details=details)
        return count


def read_address(request: HttpRequest) -> str | None:
    """The address of a client as ``axes`` counts it."""
    return find_place(find_address(request)) or None


def name_attempt(request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> str | None:
    """The name under which ``axes`` counts a failure: a user's own, and a digest of any other.

    What is not a user's name may be a password in the wrong field.
    """
    if _is_by_provider(credentials):
        return BY_PROVIDER
    name = (request.POST if credentials is None else credentials).get("username")
    if not name:
        return None
    is_user = "\0" not in name and User.objects.filter(username=name).exists()
    return str(name) if is_user else f"unknown-{salted_hmac(__name__, name, algorithm='sha256').hexdigest()}"


def _is_by_provider(credentials: Mapping[str, Any] | None) -> bool:
    return credentials is not None and "nonce" in credentials


def check_old_password(request: HttpRequest) -> HttpResponse | None:
    """Count the old password of a form if it is wrong; the answer 429 if it was wrong too often."""
    user, old = request.user, request.POST.get("old_password", "")
    if not (settings.AXES_ENABLED and old and user.is_authenticated and user.has_usable_password()):
        return None
    credentials = {"username": user.get_username()}
    if authenticate(request, password=old, **credentials) is not None:
        SignInThrottle().reset_user_attempts(request, credentials)
    return show_lockout(request) if getattr(request, "axes_locked_out", False) else None


def show_lockout(
    request: HttpRequest, response: HttpResponseBase | None = None, credentials: Mapping[str, Any] | None = None
) -> HttpResponse:
    """The page for a client that is locked out, with the minutes after which it is let in again at the latest.

    The middleware of ``axes`` answers with it in place of ``response``.
    """
    minutes = int(get_cool_off(request).total_seconds() / 60)
    is_by_provider = _is_by_provider(credentials)
    what = "The user name or password was wrong too often."
    back, back_url = "Back to sign-in", reverse("login")
    if request.user.is_authenticated:
        what = "The old password was wrong too often."
        back, back_url = "Back to your account", reverse("runs:account")
    if is_by_provider:
        what = "Sign-in failed too often from your IP address."
    reason = f"{what} Try again in {format_plural(minutes, 'minute')}."
    if not is_by_provider:
        reason += " Until then, every password is refused. An administrator can set a new one."
    response = refuse(request, "Too many failed sign-ins", reason=reason, back=back, back_url=back_url, status=429)
    response.headers["Retry-After"] = str(minutes * 60)
    return response


class SignInView(LoginView):
    """The form for a name and a password, and a link to the provider if there is one."""

    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the page shows."""
        name = settings.TOOLFLOW_OIDC_NAME if settings.TOOLFLOW_OIDC_ISSUER else ""
        return {**super().get_context_data(**kwargs), "provider_name": name}
