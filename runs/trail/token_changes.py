"""Entries for tokens that let nobody in any more. Nothing of a token itself is kept."""

from __future__ import annotations

from runs.models import ApiToken
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def tell_of_revocation(token: ApiToken) -> None:
    """Leave an entry for a token that was revoked. Its owner must be loaded."""
    details = {"of": token.user.get_username(), "scope": token.scope}
    leave_trail(action=TrailAction.TOKEN_REVOKED, kind="apitoken", label=token.name, details=details)
