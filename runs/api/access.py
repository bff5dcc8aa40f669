"""Who is asking the API, what they may do, and how often: tokens or sessions, scopes and permissions, quotas."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.exceptions import PermissionDenied
from django.utils import timezone
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.settings import CONSTANTS
from rest_framework import exceptions
from rest_framework.authentication import get_authorization_header
from rest_framework.permissions import BasePermission
from rest_framework.throttling import BaseThrottle

from runs.audit_log.actor import find_place
from runs.documents.loading import RunLinks
from runs.models import ApiToken, BrowserSession, TokenScope
from runs.observability.log_events import Outage

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser
    from rest_framework.request import Request

READ_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an operation requires: a permission of the user and, of a token, at least this scope."""

    permission: str
    scope: TokenScope
    more: tuple[str, ...] = ()
    """Further permissions."""


READ_RUNS = Requirement("runs.view_run", TokenScope.READ)
START_RUNS = Requirement("runs.add_run", TokenScope.RUN)
# What a change answers shows all that reading does, so that each change takes the permission to read as well.
RERUN_RUNS = Requirement("runs.add_run", TokenScope.RUN, ("runs.view_run",))
CHANGE_RUNS = Requirement("runs.change_run", TokenScope.RUN, ("runs.view_run",))
ACT_ON_RUNS = Requirement("runs.view_run", TokenScope.RUN)
"""For bulk actions, which check what they do to the runs themselves."""
KEEP_VIEWS = Requirement("runs.view_run", TokenScope.RUN)
READ_AUDIT_LOG = Requirement("runs.view_trailentry", TokenScope.READ)
READ_FLOWS = Requirement("flows.view_flow", TokenScope.READ)
ADD_FLOWS = Requirement("flows.add_flow", TokenScope.EDIT, ("flows.view_flow",))
CHANGE_FLOWS = Requirement("flows.change_flow", TokenScope.EDIT, ("flows.view_flow",))
# Its versions are deleted with a flow.
DELETE_FLOWS = Requirement("flows.delete_flow", TokenScope.EDIT, ("flows.delete_flowversion", "flows.view_flow"))
READ_ENDPOINTS = Requirement("runs.view_webhookendpoint", TokenScope.READ)
ADD_ENDPOINTS = Requirement("runs.add_webhookendpoint", TokenScope.EDIT, ("runs.view_webhookendpoint",))
CHANGE_ENDPOINTS = Requirement("runs.change_webhookendpoint", TokenScope.EDIT, ("runs.view_webhookendpoint",))
DELETE_ENDPOINTS = Requirement("runs.delete_webhookendpoint", TokenScope.EDIT, ("runs.view_webhookendpoint",))
DELETE_VERSIONS = Requirement("flows.delete_flowversion", TokenScope.EDIT, ("flows.view_flow",))


class ScopePermission(BasePermission):
    """Lets a caller through who meets the requirement of the operation; without one, every signed-in user."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """True. Raises ``NotAuthenticated`` or ``PermissionDenied`` with a sentence otherwise."""
        if not request.user.is_authenticated:
            raise exceptions.NotAuthenticated(
                "Send a token as “Authorization: Bearer tf_…”. Create one on the page “API tokens”."
            )
        requirement: Requirement | None = view.find_requirement(str(request.method))
        if requirement is None:
            return True
        token = request.auth
        if isinstance(token, ApiToken) and not token.allows(requirement.scope):
            raise PermissionDenied(
                f"The token “{token.name}” may only {TokenScope(token.scope).label.lower()}; "
                f"this needs a token with the scope “{requirement.scope}”."
            )
        for permission in (requirement.permission, *requirement.more):
            require_permission(request, permission)
        return True


def require_permission(request: Request, permission: str) -> None:
    """Raise ``PermissionDenied`` with a sentence if the user lacks ``permission`` (``app.codename``)."""
    if not request.user.has_perm(permission):
        raise PermissionDenied(f"Your account lacks the permission “{permission}”.")


def find_user(request: Request) -> User:
    """The user that an operation is done for: the permission has let no other caller through."""
    user = request.user
    assert user.is_authenticated
    return user


def has_access(request: Request, requirement: Requirement) -> bool:
    """Whether the caller meets a requirement that is not the operation's own."""
    token = request.auth
    if isinstance(token, ApiToken) and not token.allows(requirement.scope):
        return False
    return all(request.user.has_perm(permission) for permission in (requirement.permission, *requirement.more))


def still_has_access(request: Request, requirement: Requirement) -> bool:
    """Whether the caller of a request that was let in before would be let in now, for answers that take minutes.

    The account, its permissions and the token are read again; of a session also whether the password is still the same.
    """
    caller: Any = request.user
    user = User.objects.filter(pk=caller.pk, is_active=True).first()
    if user is None or not user.has_perm(requirement.permission):
        return False
    now = timezone.now()
    if isinstance(request.auth, ApiToken):
        return bool(ApiToken.objects.active(now).filter(pk=request.auth.pk).exists())
    key = request.session.session_key
    is_signed_in = BrowserSession.objects.filter(session_key=key, user=user, expire_date__gt=now).exists()
    return is_signed_in and user.password == caller.password


# ---------------------------------------------------------------------------------------------------------------------
# Tokens

LAST_USE_INTERVAL = timedelta(minutes=1)
"""How exactly the last use of a token is stored."""

_UNKNOWN = "Unknown token. Create one on the page “API tokens”."


class ApiTokenAuthentication(TokenAuthentication):  # type: ignore[misc]  # knox ships no types
    """``Authorization: Bearer tf_…``. Tokens that expired or were revoked stay listed for their owners."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiToken] | None:
        """The owner and the token; None if none was sent. Raises ``AuthenticationFailed`` with a sentence."""
        # Other schemes may be those of a proxy in front of this server, whose users sign in on the pages.
        scheme, *rest = get_authorization_header(request).split() or [b""]
        if scheme.lower() not in (b"bearer", b"token"):
            return None
        if scheme.lower() != b"bearer" or len(rest) != 1:
            raise exceptions.AuthenticationFailed("Send a token as “Authorization: Bearer tf_…”, in one word.")
        return self.authenticate_credentials(rest[0])

    def authenticate_credentials(self, token: bytes) -> tuple[AbstractBaseUser, ApiToken]:
        """The owner and the token. Raises ``AuthenticationFailed`` with a sentence."""
        try:
            text = token.decode("ascii")
            digest = hash_token(text)
        except (ValueError, TypeError):
            raise exceptions.AuthenticationFailed(_UNKNOWN) from None
        tokens = ApiToken.objects.select_related("user").filter(digest=digest)
        row: ApiToken | None = tokens.filter(token_key=text[: CONSTANTS.TOKEN_KEY_LENGTH]).first()
        if row is None:
            raise exceptions.AuthenticationFailed(_UNKNOWN)
        now = timezone.now()
        if problem := row.find_problem(now):
            raise exceptions.AuthenticationFailed(problem)
        if row.last_used_at is None or now - row.last_used_at >= LAST_USE_INTERVAL:
            ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
        return row.user, row


# ---------------------------------------------------------------------------------------------------------------------
# Quotas

WINDOW_SECONDS = 60
"""What a quota is for; the window of every caller begins with the minute."""
CACHE_RETRY_SECONDS = 10.0
"""How long a cache that did not answer isn't asked again: each request would wait for its timeout."""

read_time = time.time


class RequestQuota(BaseThrottle):
    """Requests in this minute: by token, by user for a session, by address for anonymous callers.

    They are counted in the cache “throttling”, which all web servers share with Redis; without it all are let in.
    ``view.quota_headers`` gets the fields of the IETF's draft “RateLimit header fields for HTTP”.
    """

    # Django REST framework's throttles say nothing of what is left, and keep the time of each request of the window: of
    # 12,000 a minute that is 108 KB, which every request would load and store in some milliseconds.
    _outage = Outage("The cache that counts requests")
    _resumes_at = 0.0
    _seconds_left = 0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count the request; False if it is one too many."""
        name, caller = self._identify(request)
        now = read_time()
        limit: int = getattr(settings, f"TOOLFLOW_API_{name.upper()}_PER_MINUTE")
        self._seconds_left = math.ceil(WINDOW_SECONDS - now % WINDOW_SECONDS)
        count = self._count(f"requests:{name}:{caller}:{int(now // WINDOW_SECONDS)}")
        view.quota_headers = {"RateLimit-Policy": f'"{name}";q={limit};w={WINDOW_SECONDS}'}
        if count is None:
            return True
        view.quota_headers["RateLimit"] = f'"{name}";r={max(0, limit - count)};t={self._seconds_left}'
        return count <= limit

    def wait(self) -> float:
        """Seconds until the next window."""
        return self._seconds_left

    def _identify(self, request: Request) -> tuple[str, str]:
        """The quota, as settings call it, and whose it is."""
        name = "reads" if request.method in READ_METHODS else "writes"
        if isinstance(request.auth, ApiToken):
            return name, f"token:{request.auth.pk}"
        if request.user.is_authenticated:
            return name, f"user:{request.user.pk}"
        # A server behind a proxy may have the address from a header, which holds what its sender likes.
        address = find_place(str(request.META.get("REMOTE_ADDR", ""))).encode(errors="replace")
        return "strangers", f"address:{hashlib.blake2b(address, digest_size=12).hexdigest()}"

    def _count(self, key: str) -> int | None:
        """How many requests there were with this one; None while the cache is away."""
        if self._resumes_at and time.monotonic() < self._resumes_at:
            return None
        try:
            count = _increase(key)
        except Exception as error:  # noqa: BLE001  # whichever cache it is, its errors are its own
            RequestQuota._resumes_at = time.monotonic() + CACHE_RETRY_SECONDS
            self._outage.note(error)
            return None
        if self._resumes_at:
            RequestQuota._resumes_at = 0.0
            self._outage.end()
        return count


def _increase(key: str) -> int:
    cache = caches["throttling"]
    try:
        return cache.incr(key)
    except ValueError:
        # The first request of its window, unless another process was faster.
        return 1 if cache.add(key, 1, timeout=2 * WINDOW_SECONDS) else cache.incr(key)


def build_links(request: Request) -> RunLinks:
    """Addresses of runs for the caller; those of webhooks only for one who may give runs an address."""
    return RunLinks(request, shows_webhooks=has_access(request, START_RUNS))
