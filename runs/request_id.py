"""The request that this thread or task answers, and its id.

The id stands on the answer, on error pages, in every log line and in the audit log. A client may bring its own in
``X-Request-ID``, so that one id goes through a proxy, ToolFlow and what called it.
"""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

from django.http import HttpRequest

HEADER = "X-Request-ID"
META_KEY = "toolflow.request_id"
"""Where a request keeps its id."""

_VALID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{7,63}")

current_request: ContextVar[HttpRequest | None] = ContextVar("current_request", default=None)
"""Set by the site's middleware; None outside of a request."""


def read_request_id() -> str | None:
    """The id of the request that is being answered; None outside of one."""
    request = current_request.get()
    return None if request is None else request.META.get(META_KEY)


def choose_request_id(offered: str | None) -> str:
    """The id that a client ``offered`` if it is 8 to 64 plain characters, else a new one."""
    if offered is not None and _VALID.fullmatch(offered):
        return offered
    return uuid.uuid4().hex
