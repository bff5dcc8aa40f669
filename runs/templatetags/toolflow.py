"""Template filters and tags of the pages; only icons give markup."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache

from django import template
from django.template.defaultfilters import date
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from heroicons.templatetags.heroicons import heroicon_mini

from flows.providers import is_simulated
from runs import formatting
from runs.history.texts import MAX_TEXT_LENGTH, CutText, cut_text, find_direction, show_invisible
from runs.observability.log_events import read_request_id
from runs.pages.badges import CHECKS, LIFECYCLE, SEVERITIES, STATES, Badge

register = template.Library()

register.filter("inert", show_invisible)
register.filter("tokens", formatting.format_count)
register.filter("cost", formatting.format_cost)
register.filter("duration", formatting.format_duration)
register.filter("plural", formatting.format_plural)
register.simple_tag(is_simulated, name="is_simulated_site")

_BADGES = {**STATES, **LIFECYCLE, **SEVERITIES, **CHECKS}


@register.simple_tag
@cache
def icon(name: str, size: int = 16) -> SafeString:
    """A solid heroicon that assistive technology passes over; words are always beside it."""
    # The package parses and copies XML for each icon: too slow for one in every cell of a list.
    svg = heroicon_mini(name, size=size, aria_hidden="true", **{"class": f"icon icon-{name}"})
    return mark_safe(svg)  # noqa: S308  # SVG from an installed package, nothing else in it


@register.filter
def cut(text: str, most: int = MAX_TEXT_LENGTH) -> CutText:
    """A text of any length for ``cut_text.html``: its beginning, made inert, and how much of it does not follow."""
    return cut_text(text, most)


@register.filter
def badge(name: str) -> Badge:
    """Word, icon and tone of a status, an outcome, a severity or what became of an issue."""
    return _BADGES[name]


@register.filter
def direction(text: object) -> str:
    """``ltr`` or ``rtl``, for ``<bdi dir="…">`` around a text of a model or a user."""
    return find_direction(str(text))


@register.filter
def moment(value: datetime) -> str:
    """A point in time with its zone, that of the reader: ``21 Nov 2026, 02:14:09 UTC``."""
    return formatting.format_moment(timezone.localtime(value))


@register.filter
def elapsed(value: datetime) -> str:
    """For how long something has been going on: ``1 min 08 s``."""
    return formatting.format_elapsed((timezone.now() - value).total_seconds())


@register.filter
def age(value: datetime) -> str:
    """How long ago something was: ``5 h``."""
    return formatting.format_age(timezone.now() - value)


@register.filter
def ago(value: datetime) -> str:
    """``5 h ago``; from a week on the day, which says more: ``21 Nov 2026``."""
    is_recent = timezone.now() - value < timedelta(days=7)
    return f"{age(value)} ago" if is_recent else date(timezone.localtime(value), "j M Y")


@register.simple_tag
def current_request_id() -> str:
    """The id of the request, by which the log is searched; empty outside of a request."""
    return read_request_id() or ""
