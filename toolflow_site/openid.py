"""Signing in through a provider of OpenID Connect: whom it lets in, and what they may do.

The package ``mozilla-django-oidc`` does the protocol (code flow with PKCE, state and nonce). Here stands what it leaves
open: where the provider’s addresses come from, and that a token was issued by that provider for us. Whose account it
is, and what follows from its claims, stands in ``openid_accounts``. Nothing of this is imported without a provider.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import SuspiciousOperation
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from runs.signing_in import AccountBackend
from runs.trail.ended_sessions import end_sessions
from toolflow_site.openid_accounts import InNoGroupError, NotLetInError, let_in, put_into_groups

TIMEOUT = 10
"""Seconds that the provider may take for one answer."""
REMEMBERED = 3600
"""Seconds for which the provider’s description of itself holds."""

LONGEST_NEXT = 1_000
"""Characters of an address on this website to come back to; whoever brings a longer one begins at the front page."""

UNREADABLE = (
    requests.RequestException, SuspiciousOperation, jwt.PyJWTError, ValueError,
    # What the package reads may be no object, or one without what it looks for.
    KeyError, TypeError, AttributeError,
)  # fmt: skip
"""What is raised where a provider does not answer, or not as it should."""

logger = logging.getLogger(__name__)


class Provider:
    """What the provider says of itself, asked for when it is needed first."""

    def __init__(self) -> None:
        self._issuer = ""
        self._found: Mapping[str, Any] = {}
        self._asked_at = 0.0

    def find(self, name: str) -> str:
        """An entry such as ``token_endpoint``. Raises ``requests.RequestException`` or ``ValueError``."""
        issuer: str = settings.TOOLFLOW_OIDC_ISSUER
        if issuer != self._issuer or time.monotonic() - self._asked_at > REMEMBERED:
            answer = requests.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", timeout=TIMEOUT)
            answer.raise_for_status()
            found = answer.json()
            if not isinstance(found, dict) or str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
                raise ValueError(f"{issuer} does not describe itself as the issuer.")
            self._issuer, self._found, self._asked_at = issuer, found, time.monotonic()
        value = self._found.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{issuer} does not say what its {name} is.")
        if issuer.startswith("https:") and not value.startswith("https:"):
            raise ValueError(f"The {name} of {issuer} is not reached by HTTPS.")
        return value


provider = Provider()


class OpenIDBackend(OIDCAuthenticationBackend, AccountBackend):  # type: ignore[misc]  # the package ships no types
    """Lets in whom the provider vouches for, if their e-mail address and groups are among those that are wanted."""

    def __init__(self) -> None:
        # Made for every request of whoever signed in so: nobody is asked here.
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None
        self.UserModel = get_user_model()

    OIDC_OP_TOKEN_ENDPOINT = property(lambda self: provider.find("token_endpoint"))
    OIDC_OP_USER_ENDPOINT = property(lambda self: provider.find("userinfo_endpoint"))
    OIDC_OP_JWKS_ENDPOINT = property(lambda self: provider.find("jwks_uri"))

    # The package's own lets in accounts that were closed since.
    get_user = AccountBackend.get_user

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user, or None with a sentence in ``request.openid_problem``."""
        if request is None or "nonce" not in kwargs:
            return None
        try:
            found: User | None = super().authenticate(request, **kwargs)
        except UNREADABLE as error:
            # A provider may repeat in an error what it was sent.
            logger.warning("Signing in through %s failed: %s.", settings.TOOLFLOW_OIDC_ISSUER, type(error).__name__)
            request.openid_problem = f"{settings.TOOLFLOW_OIDC_NAME} could not say who you are. Try again."  # type: ignore[attr-defined]  # read by the view
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
            issuer=provider.find("issuer"),
            leeway=30,
            options={"require": ["exp", "iat", "sub"]},
        )
        return payload

    def get_or_create_user(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> User | None:
        """The user of the claims, made if need be, in the groups that follow from them."""
        claims = self.get_userinfo(access_token, id_token, payload)
        if not isinstance(claims, dict) or claims.get("sub") != payload["sub"]:
            raise ValueError("The claims are about somebody else than the token.")
        # Some providers tell groups only in the token.
        claims = {**payload, **claims, "iss": payload["iss"]}
        try:
            try:
                return let_in(claims)
            except IntegrityError:
                # Somebody signed in for the first time twice at once: now the account is there.
                return let_in(claims)
        except NotLetInError as refusal:
            self.request.openid_problem = str(refusal)
            if isinstance(refusal, InNoGroupError) and refusal.user is not None:
                self._put_out(refusal.user)
            return None

    def _put_out(self, user: User) -> None:
        """Take from an account what the provider’s groups gave, and end its sessions. Its tokens can do as little."""
        # Asked before its session goes.
        is_here = getattr(self.request, "user", None) == user
        with transaction.atomic():
            for account in User.objects.select_for_update().filter(pk=user.pk):
                put_into_groups(account, set())
            end_sessions(user=user)
        if is_here:
            self.request.session.flush()
            self.request.user = AnonymousUser()


class BeginView(OIDCAuthenticationRequestView):  # type: ignore[misc]  # the package ships no types
    """Sends somebody to the provider."""

    def __init__(self, **kwargs: Any) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**kwargs)
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID

    OIDC_OP_AUTH_ENDPOINT = property(lambda self: provider.find("authorization_endpoint"))

    def get(self, request: HttpRequest) -> HttpResponse:
        """Lead to the provider, or back with a sentence if it does not answer."""
        try:
            answer: HttpResponse = super().get(request)
        except (requests.RequestException, ValueError) as error:
            logger.warning("%s can’t be asked: %s.", settings.TOOLFLOW_OIDC_ISSUER, type(error).__name__)
            messages.error(request, f"{settings.TOOLFLOW_OIDC_NAME} does not answer. Try again soon.")
            return HttpResponseRedirect(reverse("login"))
        # Browsers take no cookie that is larger than 4 KB.
        if len(iri_to_uri(request.session["oidc_login_next"]) or "") > LONGEST_NEXT:
            request.session["oidc_login_next"] = None
        return answer


class ReturnView(OIDCAuthenticationCallbackView):  # type: ignore[misc]  # the package ships no types
    """Takes back whom the provider sends."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Let somebody in, or say why not."""
        if request.GET.get("error"):
            return self._refuse(request)
        try:
            answer: HttpResponse = super().get(request)
        except SuspiciousOperation:
            # The state is not one that this browser was given.
            return self.login_failure()
        return answer

    def _refuse(self, request: HttpRequest) -> HttpResponse:
        """Tell of the provider’s refusal whoever was sent there. Anybody can lead others to this address: nobody is
        signed out by it, as they would be by the package."""
        states = request.session.get("oidc_states", {})
        if request.GET.get("state") not in states:
            return HttpResponseRedirect(reverse("login"))
        del states[request.GET["state"]]
        return self.login_failure()

    def login_failure(self) -> HttpResponse:
        """Lead back to the sign-in page, with a sentence."""
        sentence = getattr(self.request, "openid_problem", "") or "Signing in did not work. Try again."
        messages.error(self.request, sentence)
        # What was begun is over, and the browser is to forget it too.
        self.request.session.modified = True
        return HttpResponseRedirect(reverse("login"))
