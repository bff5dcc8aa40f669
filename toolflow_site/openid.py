"""Signing in through a provider of OpenID Connect: whom it lets in, and what they may do.

The package ``mozilla-django-oidc`` does the protocol (code flow with PKCE, state and nonce). Here stands what it leaves
open: that a token was issued by that provider for us, and that nobody comes back twice. Where the provider’s addresses
come from stands in ``openid_provider``; whose account it is, and what follows from its claims, in ``openid_accounts``.
Nothing of this is imported without a provider.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User
from django.core.cache import caches
from django.core.exceptions import SuspiciousOperation
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from runs.models.browser_session import ANONYMOUS_AGE
from runs.signing_in import AccountBackend
from runs.trail.ended_sessions import end_sessions
from toolflow_site.openid_accounts import InNoGroupError, NotLetInError, let_in, put_into_groups
from toolflow_site.openid_provider import RESPITE, ProviderBusyError, asking_provider, find_provider
from toolflow_site.sign_in import show_lockout

LONGEST_NEXT = 1_000
"""Characters of an address on this website to come back to; whoever brings a longer one begins at the front page."""

UNREADABLE = (
    requests.RequestException, SuspiciousOperation, jwt.PyJWTError, ValueError,
    # What the package reads may be no object, or one without what it looks for.
    KeyError, TypeError, AttributeError,
)  # fmt: skip
"""What is raised where a provider does not answer, or not as it should."""

logger = logging.getLogger(__name__)


def use_state(state: str) -> bool:
    """Whether somebody comes back with ``state`` for the first time: their cookie may be sent again and again.

    Web servers that share a Redis remember it together, others each for itself.
    """
    key = f"openid-state:{state}"
    try:
        return caches["throttling"].add(key, True, timeout=ANONYMOUS_AGE)
    except Exception as error:  # noqa: BLE001  # whichever cache it is, its errors are its own
        logger.warning("Redis does not remember who came back from the provider: %s.", type(error).__name__)
        return caches["default"].add(key, True, timeout=ANONYMOUS_AGE)


class OpenIDBackend(OIDCAuthenticationBackend, AccountBackend):  # type: ignore[misc]  # the package ships no types
    """Lets in whom the provider vouches for, if their e-mail address and groups are among those that are wanted."""

    def __init__(self) -> None:
        # Made for every request of whoever signed in so: nobody is asked here.
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None
        self.UserModel = get_user_model()

    OIDC_OP_TOKEN_ENDPOINT = property(lambda self: find_provider().find("token_endpoint"))
    OIDC_OP_USER_ENDPOINT = property(lambda self: find_provider().find("userinfo_endpoint"))
    OIDC_OP_JWKS_ENDPOINT = property(lambda self: find_provider().find("jwks_uri"))

    # The package's own lets in accounts that were closed since.
    get_user = AccountBackend.get_user

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user, or None with a sentence in ``request.openid_problem``. Raises ``ProviderBusyError``."""
        if request is None or "nonce" not in kwargs:
            return None
        try:
            with asking_provider():
                # Not before: whoever finds the provider busy may come again.
                claims: Any = super().authenticate(request, **kwargs) if use_state(request.GET["state"]) else None
            found = self._let_in(claims) if claims else None
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
            issuer=find_provider().find("issuer"),
            leeway=30,
            options={"require": ["exp", "iat", "sub"]},
        )
        audiences = payload["aud"]
        if isinstance(audiences, list) and len(audiences) > 1 and payload.get("azp") != self.OIDC_RP_CLIENT_ID:
            raise jwt.InvalidAudienceError("The token is for several, and was given to somebody else.")
        return payload

    def get_or_create_user(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """What the provider says of somebody. The package hands it on; their account is found once nobody is asked."""
        claims = self.get_userinfo(access_token, id_token, payload)
        if not isinstance(claims, dict) or claims.get("sub") != payload["sub"]:
            raise ValueError("The claims are about somebody else than the token.")
        # Whether an address is verified is said of the one beside it.
        told = claims if "email" in claims else payload
        address = {name: told.get(name) for name in ("email", "email_verified")}
        # Some providers tell groups only in the token.
        return {**payload, **claims, **address, "iss": payload["iss"]}

    def _let_in(self, claims: Mapping[str, Any]) -> User | None:
        """The user of the claims, made if need be, in the groups that follow from them."""
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

    def get(self, request: HttpRequest) -> HttpResponse:
        """Lead to the provider, or back with a sentence if it does not answer."""
        provider = find_provider()
        try:
            with asking_provider() if provider.is_outdated else nullcontext():
                self.OIDC_OP_AUTH_ENDPOINT = provider.find("authorization_endpoint")
        except ProviderBusyError:
            return _show_busy(request)
        except (requests.RequestException, ValueError) as error:
            logger.warning("%s can’t be asked: %s.", settings.TOOLFLOW_OIDC_ISSUER, type(error).__name__)
            messages.error(request, f"{settings.TOOLFLOW_OIDC_NAME} does not answer. Try again soon.")
            return HttpResponseRedirect(reverse("login"))
        answer: HttpResponse = super().get(request)
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
        except ProviderBusyError:
            return _show_busy(request)
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
        """Lead back to the sign-in page, with a sentence; 429 where an address failed too often."""
        if getattr(self.request, "axes_locked_out", False):
            return show_lockout(self.request)
        sentence = getattr(self.request, "openid_problem", "") or "Signing in did not work. Try again."
        messages.error(self.request, sentence)
        # What was begun is over, and the browser is to forget it too.
        self.request.session.modified = True
        return HttpResponseRedirect(reverse("login"))


def _show_busy(request: HttpRequest) -> HttpResponse:
    """Whoever tries again soon goes on where they are."""
    response = render(request, "registration/provider_busy.html", {"name": settings.TOOLFLOW_OIDC_NAME}, status=503)
    response.headers["Retry-After"] = str(RESPITE)
    return response
