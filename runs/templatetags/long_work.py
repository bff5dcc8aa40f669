"""Template tags of bulk actions."""

from __future__ import annotations

from collections.abc import Mapping

from django import template
from django.http import QueryDict
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.models import WorkState
from runs.pages.badges import Badge
from runs.templatetags.toolflow import icon

register = template.Library()

_STATES: Mapping[str, Badge] = {
    WorkState.WAITING: Badge("Waiting", "clock", "quiet"),
    WorkState.WORKING: Badge("Under way", "arrow-path", "running"),
    WorkState.DONE: Badge("Done", "check-circle", "passed"),
    WorkState.STOPPED: Badge("Stopped", "stop-circle", "quiet"),
    WorkState.FAILED: Badge("Failed", "bolt-slash", "errored"),
}


@register.simple_tag
def work_state(state: str, *, chip: bool = False) -> SafeString:
    """Icon and word of how a bulk action stands."""
    badge = _STATES[state]
    css_class = "chip" if chip else "state"
    return format_html('<span class="{} tone-{}">{}{}</span>', css_class, badge.tone, icon(badge.icon), badge.word)


_FILTERS = {
    "q": "Search",
    "severity": "Issues at least",
    "code": "Issue code",
    "from": "Created from",
    "to": "Created to",
    "cost": "Cost over",
    "tokens": "Tokens over",
    "by": "Started by",
}


@register.filter
def list_filters(query: str) -> list[tuple[str, str]]:
    """What each filter of a list of runs is about, and what it asks for, from the query string of its address."""
    values = [(name, value) for name, values in QueryDict(query).lists() for value in values]
    return [(_FILTERS.get(name, name.capitalize()), value.replace(",", " or ")) for name, value in values]
