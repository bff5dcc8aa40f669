"""Who is asking: the owner of a token, or whoever is signed in on the pages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.settings import CONSTANTS
from rest_framework import exceptions
from rest_framework.authentication import get_authorization_header

from runs.models import ApiToken

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser
    from rest_framework.request import Request

USE_NOTED_EACH = timedelta(minutes=1)


class ApiTokenAuthentication(TokenAuthentication):  # type: ignore[misc]  # knox ships no types
    """``Authorization: Bearer tf_…``. Tokens that expired or were revoked stay listed for their owners."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiToken] | None:
        """The owner and the token; None if none was sent. Raises ``AuthenticationFailed`` with a sentence."""
        # Other schemes may be those of a server before this one, whose users sign in on the pages.
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
        found: Any = ApiToken.objects.filter(token_key=text[: CONSTANTS.TOKEN_KEY_LENGTH], digest=digest)
        row: ApiToken | None = found.select_related("user").first()
        if row is None:
            raise exceptions.AuthenticationFailed(_UNKNOWN)
        now = timezone.now()
        if problem := row.find_problem(now):
            raise exceptions.AuthenticationFailed(problem)
        if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EACH:
            ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
        return row.user, row


_UNKNOWN = "This token is not known. Make one on the page “API tokens”."
