"""Who may read metrics: whoever knows the token."""

from __future__ import annotations

import base64
import binascii
import hmac


def is_allowed(authorization: str | None, *, token: str) -> bool:
    """Whether the header ``Authorization`` brings ``token``: as a bearer token, or as the password of any user."""
    scheme, _, value = (authorization or "").partition(" ")
    given = value.strip()
    match scheme.lower():
        case "bearer":
            pass
        case "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        case _:
            return False
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
