"""Filters of the pages about versions of flows."""

from __future__ import annotations

import re

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()

_CODE = re.compile(r"`([^`]*)`")


@register.filter
def with_code(text: str) -> SafeString:
    """A sentence of ours; what stands between backticks in it is set as code."""
    return mark_safe(_CODE.sub(r"<code>\1</code>", escape(text)))  # noqa: S308  # escaped first
