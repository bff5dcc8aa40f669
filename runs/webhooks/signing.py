"""By what receivers know that a message is ours: the headers of the Standard Webhooks scheme."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.utils.crypto import salted_hmac
from standardwebhooks import Webhook

_PREFIX = "whsec_"


def list_secrets() -> Sequence[str]:
    """The secrets of this installation, the newest first: those of the settings, else one that follows from its key."""
    found: Sequence[str] = settings.TOOLFLOW_WEBHOOK_SECRET
    return found or [_derive_secret()]


def sign(*, message_id: str, at: datetime, body: str) -> str:
    """The header ``webhook-signature``: one signature for each secret, so that receivers may change over in peace.

    ``at`` is in UTC.
    """
    return " ".join(Webhook(secret).sign(message_id, at, body) for secret in list_secrets())


def build_headers(*, message_id: str, at: datetime, signature: str) -> dict[str, str]:
    """The headers of a message that was signed at that moment."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }


def write_secret(key: bytes) -> str:
    """A key as receivers' libraries take it."""
    return _PREFIX + base64.b64encode(key).decode("ascii")


def _derive_secret() -> str:
    key = salted_hmac("runs.webhooks", "secret", secret=settings.SECRET_KEY, algorithm="sha256")
    return write_secret(key.digest())
