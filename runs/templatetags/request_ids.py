"""The id of the request that a page answers, for pages that tell of a failure."""

from __future__ import annotations

from django import template

from runs.request_id import read_request_id

register = template.Library()


@register.simple_tag
def current_request_id() -> str:
    """The id, by which the log is searched; empty outside of a request."""
    return read_request_id() or ""
