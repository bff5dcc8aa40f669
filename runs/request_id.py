"""The id of the request that this thread or task answers.

Whoever tells of a failure names it, and it stands in every log line and in the audit trail. A client may bring its own
in ``X-Request-ID``; if it is sane it is kept, so that one id goes through a proxy, ToolFlow and what called it.
"""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar, Token

HEADER = "X-Request-ID"
META_KEY = "toolflow.request_id"
"""Where a request itself keeps its id, for whoever has nothing but the request."""

_SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{7,63}")

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def read_request_id() -> str | None:
    """The id of the request that is being answered; None outside of one."""
    return _request_id.get()


def choose_request_id(offered: str | None) -> str:
    """The id that a client ``offered`` if it is sane (8 to 64 plain characters), else a new one."""
    if offered is not None and _SANE.fullmatch(offered):
        return offered
    return uuid.uuid4().hex


def set_request_id(request_id: str | None) -> Token[str | None]:
    """Make ``request_id`` the current one; what comes back resets it."""
    return _request_id.set(request_id)


def reset_request_id(token: Token[str | None]) -> None:
    """Undo ``set_request_id``."""
    _request_id.reset(token)
