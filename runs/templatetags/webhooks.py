"""Template tags of the pages about webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs import formatting
from runs.pages.badges import Badge
from runs.templatetags.toolflow import icon, moment

register = template.Library()

_STATES: Mapping[str, Badge] = {
    "waiting": Badge("Waiting", "clock", "quiet"),
    "sending": Badge("Being sent", "arrow-path", "running"),
    "retrying": Badge("Waiting to retry", "clock", "running"),
    "delivered": Badge("Delivered", "check-circle", "passed"),
    "failed": Badge("Not delivered", "x-circle", "failed"),
}


@register.simple_tag
def delivery_state(state: str, *, chip: bool = False) -> SafeString:
    """Icon and word of how a delivery stands."""
    badge = _STATES[state]
    css_class = "chip" if chip else "state"
    return format_html('<span class="{} tone-{}">{}{}</span>', css_class, badge.tone, icon(badge.icon), badge.word)


@register.simple_tag
def next_try(value: datetime | None, now: datetime) -> SafeString:
    """When a delivery is tried next: ``in 9 min`` with the exact time in its title, ``now``, or a dash."""
    if value is None:
        return format_html('<span class="quiet">{}</span>', formatting.NOTHING)
    seconds = (value - now).total_seconds()
    if seconds <= 0:
        return format_html("{}", "now")
    text = formatting.format_age(value - now) if seconds >= 10 else "10 s"
    return format_html('<span title="{}">in {}</span>', _strip(moment(value)), text)


def _strip(html: str) -> str:
    """The text of a moment without its element."""
    return html.partition(">")[2].partition("<")[0]
