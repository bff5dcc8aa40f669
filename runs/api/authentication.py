"""Who is asking: the owner of a token, or whoever is signed in on the pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.settings import CONSTANTS
from rest_framework import exceptions
from rest_framework.authentication import get_authorization_header

from runs.models import ApiToken
from runs.prepared_select import PreparedSelect, RowParts, build_row, list_columns

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
        row = _find_token(text[: CONSTANTS.TOKEN_KEY_LENGTH], digest)
        if row is None:
            raise exceptions.AuthenticationFailed(_UNKNOWN)
        now = timezone.now()
        if problem := row.find_problem(now):
            raise exceptions.AuthenticationFailed(problem)
        if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EACH:
            ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
        return row.user, row


def _find_token(key: str, digest: str) -> ApiToken | None:
    for values in _TOKENS.fetch([key, digest]):
        own, user = _PARTS.split(values)
        token = build_row(ApiToken, own)
        token.user = build_row(User, user)
        return token
    return None


def _select_tokens(texts: Sequence[str]) -> QuerySet[Any, Any]:
    key, digest = texts
    found: QuerySet[Any, Any] = ApiToken.objects.filter(token_key=key, digest=digest).order_by()
    return found.values_list(*_PARTS.columns)


_PARTS = RowParts(list_columns(ApiToken), list_columns(User, "user"))
_TOKENS = PreparedSelect(_select_tokens, most=2, kind=str)
_UNKNOWN = "This token is not known. Make one on the page “API tokens”."
