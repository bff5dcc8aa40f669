"""Signing in through a provider of OpenID Connect.

The package ``mozilla-django-oidc`` does the protocol (code flow with PKCE, state and nonce). This module adds what it
leaves open: where the provider's addresses come from, and that a token was issued by that provider for this
installation. ``openid_accounts`` decides whose account it is. Nothing of this is imported without
a provider.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser, User
from django.core.cache import caches
from django.core.exceptions import SuspiciousOperation
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from runs.audit_log.sign_ins import end_sessions
from runs.request_slots import release_slot
from toolflow_site.openid_accounts import InNoGroupError, NotLetInError, let_in, put_into_groups

MAX_ASKING = 8
"""Requests of one process that wait for the provider at a time."""
DISCOVERY_TIMEOUT = 10
"""Seconds that the provider may take to describe itself."""
DISCOVERY_AGE = 3600
"""Seconds for which the provider's description of itself holds."""
MAX_NEXT_LENGTH = 1_000
"""Characters of an address to come back to. It is kept in a cookie, which may have 4 KB."""

UNREADABLE = (
    requests.RequestException, SuspiciousOperation, jwt.PyJWTError, ValueError,
    # What the package reads may be no object, or one without what it needs.
    KeyError, TypeError, AttributeError,
)  # fmt: skip
"""What is raised where a provider does not answer, or not as it should."""

_asking = BoundedSemaphore(MAX_ASKING)

logger = logging.getLogger(__name__)


@contextmanager
def asking_provider() -> Iterator[None]:
    """Let others be answered meanwhile. Raises ``requests.ConnectionError`` if too many wait for the provider."""
    if not _asking.acquire(blocking=False):
        raise requests.ConnectionError(f"{MAX_ASKING} requests wait for the provider already.")
    try:
        with release_slot():
            yield
    finally:
        _asking.release()


def find_endpoint(name: str) -> str:
    """An entry such as ``token_endpoint`` of what the provider says of itself; it is asked once in ``DISCOVERY_AGE``.

    Raises ``requests.RequestException`` or ``ValueError``.
    """
    issuer = settings.TOOLFLOW_OIDC_ISSUER.rstrip("/")
    found = caches["default"].get(f"openid:{issuer}")
    if found is None:
        answer = requests.get(f"{issuer}/.well-known/openid-configuration", timeout=DISCOVERY_TIMEOUT)
        answer.raise_for_status()
        found = answer.json()
        if not isinstance(found, dict) or str(found.get("issuer", "")).rstrip("/") != issuer:
            raise ValueError(f"{issuer} does not describe itself as the issuer.")
        caches["default"].set(f"openid:{issuer}", found, DISCOVERY_AGE)
    value = found.get(name)
    if not isinstance(value, str) or (issuer.startswith("https:") and not value.startswith("https:")):
        raise ValueError(f"{issuer} names no {name}, or one that is not reached by HTTPS.")
    return value


class OpenIDBackend(OIDCAuthenticationBackend):  # type: ignore[misc]  # the package ships no types
    """Signs in the users of the provider whose e-mail addresses and groups are let in."""

    def __init__(self) -> None:
        # Created for every request of a user who signed in so: the provider is not asked here.
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None
        self.UserModel = get_user_model()

    OIDC_OP_TOKEN_ENDPOINT = property(lambda self: find_endpoint("token_endpoint"))
    OIDC_OP_USER_ENDPOINT = property(lambda self: find_endpoint("userinfo_endpoint"))
    OIDC_OP_JWKS_ENDPOINT = property(lambda self: find_endpoint("jwks_uri"))

    # The package's own lets in accounts that were closed since.
    get_user = ModelBackend.get_user

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user, or None with a sentence in ``request.openid_problem``."""
        if request is None or "nonce" not in kwargs:
            return None
        try:
            find_endpoint("issuer")
            claims: Any = super().authenticate(request, **kwargs)
            found = self._let_in(claims) if claims else None
        except UNREADABLE as error:
            # A provider may repeat in an error what it was sent.
            logger.warning("Signing in through %s failed: %s.", settings.TOOLFLOW_OIDC_ISSUER, type(error).__name__)
            request.openid_problem = f"{settings.TOOLFLOW_OIDC_NAME} could not identify you. Try again."  # type: ignore[attr-defined]  # read by the view
            return None
        if found is not None and not found.is_active:
            request.openid_problem = "Your account here is closed."  # type: ignore[attr-defined]  # read by the view
        return found

    def get_payload_data(self, token: str, key: Any) -> dict[str, Any]:
        """What a token says, if the provider issued it for this installation and it is still good."""
        payload: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[self.OIDC_RP_SIGN_ALGO],
            audience=self.OIDC_RP_CLIENT_ID,
            issuer=find_endpoint("issuer"),
            leeway=30,
            options={"require": ["exp", "iat", "sub"]},
        )
        audiences = payload["aud"]
        if isinstance(audiences, list) and len(audiences) > 1 and payload.get("azp") != self.OIDC_RP_CLIENT_ID:
            raise jwt.InvalidAudienceError("The token is for several clients, and was given to another one.")
        return payload

    def get_or_create_user(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The claims. The package hands them on; the account is looked up once the provider is not asked any more."""
        claims = self.get_userinfo(access_token, id_token, payload)
        if not isinstance(claims, dict) or claims.get("sub") != payload["sub"]:
            raise ValueError("The claims are about another subject than the token.")
        # Whether an address is verified is said of the one beside it.
        source = claims if "email" in claims else payload
        address = {name: source.get(name) for name in ("email", "email_verified")}
        # Some providers name groups only in the token.
        return {**payload, **claims, **address, "iss": payload["iss"]}

    def _let_in(self, claims: Mapping[str, Any]) -> User | None:
        """The user of the claims, created if need be, in the groups that follow from them."""
        try:
            try:
                return let_in(claims)
            except IntegrityError:
                # Two first sign-ins at once: now the account is there.
                return let_in(claims)
        except NotLetInError as refusal:
            self.request.openid_problem = str(refusal)
            if isinstance(refusal, InNoGroupError) and refusal.user is not None:
                self._put_out(refusal.user)
            return None

    def _put_out(self, user: User) -> None:
        """Take from an account what the provider's groups gave, and end its sessions. Its tokens can do as little."""
        # Compared before its session goes.
        is_here = getattr(self.request, "user", None) == user
        with transaction.atomic():
            for account in User.objects.select_for_update().filter(pk=user.pk):
                put_into_groups(account, set())
            end_sessions(user=user)
        if is_here:
            self.request.session.flush()
            self.request.user = AnonymousUser()


class BeginView(OIDCAuthenticationRequestView):  # type: ignore[misc]  # the package ships no types
    """Redirects to the provider."""

    def __init__(self, **kwargs: Any) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**kwargs)
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the provider, or back with a sentence if it does not answer."""
        try:
            with asking_provider():
                self.OIDC_OP_AUTH_ENDPOINT = find_endpoint("authorization_endpoint")
        except (requests.RequestException, ValueError) as error:
            return _show_away(request, error)
        answer: HttpResponse = super().get(request)
        if len(iri_to_uri(request.session["oidc_login_next"]) or "") > MAX_NEXT_LENGTH:
            request.session["oidc_login_next"] = None
        return answer


class ReturnView(OIDCAuthenticationCallbackView):  # type: ignore[misc]  # the package ships no types
    """Takes users back from the provider."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Sign in, or say why not."""
        try:
            if request.GET.get("error"):
                # Any page can link to this address: unlike the package's, this signs no user out.
                states = request.session.get("oidc_states", {})
                is_ours = states.pop(request.GET.get("state"), None) is not None
                return self.login_failure() if is_ours else HttpResponseRedirect(reverse("login"))
            # Not where the user is looked up: that many others wait is not a failure of the user's.
            with asking_provider():
                answer: HttpResponse = super().get(request)
        except SuspiciousOperation:
            # The state is not one that this browser was given.
            return self.login_failure()
        except requests.ConnectionError as error:
            return _show_away(request, error)
        return answer

    def login_failure(self) -> HttpResponse:
        """Redirect to the sign-in page, with a sentence."""
        sentence = getattr(self.request, "openid_problem", "") or "Sign-in failed. Try again."
        messages.error(self.request, sentence)
        # The state is used up, and the browser is to forget it too.
        self.request.session.modified = True
        return HttpResponseRedirect(reverse("login"))


def _show_away(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("%s can't be asked: %s.", settings.TOOLFLOW_OIDC_ISSUER, type(error).__name__)
    messages.error(request, f"{settings.TOOLFLOW_OIDC_NAME} is not responding. Try again soon.")
    return HttpResponseRedirect(reverse("login"))
