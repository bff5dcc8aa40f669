"""The caller: which account and token a request is let in by."""

from __future__ import annotations

from datetime import datetime

from django.urls import URLPattern, path
from pydantic import Field
from rest_framework.request import Request

from runs.api.base import ApiView, operation
from runs.documents.base import Answer
from runs.models import ApiToken, TokenScope


class Token(Answer):
    """The token that a request was sent with."""

    name: str = Field(description="What its owner calls it.")
    scope: TokenScope = Field(description="What it may do at most, besides the permissions of its owner.")
    expires_at: datetime | None = Field(validation_alias="expiry", description="UTC; null if it does not expire.")


class Account(Answer):
    """The caller of a request."""

    username: str = Field(description="The name of the account.")
    permissions: list[str] = Field(description="What the account may do with flows and runs, such as `runs.add_run`.")
    token: Token | None = Field(description="The token; null for a session of the pages.")


class AccountDetail(ApiView):
    """``/me``"""

    @operation("getMe", "Get the current user", tag="Installation", requires=None, answers={200: Account})
    def get(self, request: Request) -> Account:
        """The account and the token that this request is let in by."""
        granted = request.user.get_all_permissions()
        return Account.model_validate(
            {
                "username": request.user.get_username(),
                "permissions": sorted(name for name in granted if name.startswith(("flows.", "runs."))),
                "token": request.auth if isinstance(request.auth, ApiToken) else None,
            }
        )


urls: list[URLPattern] = [path("me", AccountDetail.as_view(), name="me")]
