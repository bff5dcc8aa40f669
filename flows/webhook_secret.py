"""By what receivers of webhooks know that a message is ours: secrets that follow from the secret key.

Whoever checks messages with a secret could sign others with it. So each flow has one of its own, for its own address,
and each user has one, for the addresses of the runs that this user starts. They are stored nowhere.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from django.conf import settings
from django.utils.crypto import salted_hmac

_CONTEXT = "toolflow: secret of a webhook"
"""Keeps these keys apart from all others that follow from the secret key."""
_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True)
class WebhookSigner:
    """In whose name a message is signed."""

    name: str
    """Tells signers apart for ever. Its number is that of the row: names can be taken by somebody else later."""

    @classmethod
    def of_flow(cls, flow_id: int) -> Self:
        """A flow, which tells its own address."""
        return cls(f"flow {flow_id}")

    @classmethod
    def of_user(cls, user_id: int | None) -> Self:
        """A user, whose runs tell the address that they were given; None for runs that nobody started, or nobody who
        still has an account.
        """
        return cls("nobody" if user_id is None else f"user {user_id}")

    @property
    def secret(self) -> str:
        """The secret, as receivers' libraries take it."""
        return self.list_secrets()[0]

    def list_secrets(self) -> Sequence[str]:
        """The secret that follows from the secret key, and those from the keys of before that still count."""
        keys = dict.fromkeys((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))
        return [self._derive_secret(key) for key in keys]

    def _derive_secret(self, key: str) -> str:
        derived = salted_hmac(_CONTEXT, self.name, secret=key, algorithm="sha256").digest()
        return _PREFIX + base64.b64encode(derived).decode("ascii")
