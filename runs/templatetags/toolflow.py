"""Template tags and filters of the pages: icons, badges, and figures.

Tags build small HTML in Python where a page repeats them by the hundred. It goes through ``format_html``, or whatever
is not ours is escaped where it is put in: by the standard library, which does the same in a third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from html import escape

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from heroicons.templatetags.heroicons import heroicon_mini

from flows.providers import is_simulated
from runs import formatting
from runs.formatting import format_elapsed
from runs.history.issue_links import anchor_attempt
from runs.history.json_lines import show_invisible
from runs.history.texts import CutText, cut_text, find_direction
from runs.pages.badges import SEVERITIES, STATES, Badge

register = template.Library()


@register.simple_tag
@cache
def icon(name: str, size: int = 16) -> SafeString:
    """A solid heroicon that assistive technology passes over; words always stand beside it."""
    # The package parses and copies XML for each icon: too slow for one in every cell of a list.
    svg = heroicon_mini(name, size=size, aria_hidden="true", **{"class": f"icon icon-{name}"})
    return mark_safe(svg)  # noqa: S308  # SVG from an installed package, nothing else in it


@register.simple_tag
def attempt_anchor(step: int, number: int) -> str:
    """The id of an attempt on the page of its run, for links to it."""
    return anchor_attempt(step, number)


@register.simple_tag
def state(name: str, *, chip: bool = False) -> SafeString:
    """Icon and word of a status or an outcome; with ``chip`` on a tinted ground."""
    return _badge(STATES[name], "chip" if chip else "state")


@register.simple_tag
@cache
def severity_icon(name: str) -> SafeString:
    """The icon of a severity alone, where its word stands beside it."""
    badge = SEVERITIES[name]
    return format_html('<span class="tone-{}">{}</span>', badge.tone, icon(badge.icon))


@register.simple_tag
def issue_counts(counts: Iterable[tuple[str, int]]) -> SafeString:
    """How many issues of each severity there are; ``None`` where there are none."""
    shown = [(SEVERITIES[name], count) for name, count in counts if count]
    if not shown:
        return format_html('<span class="quiet">{}</span>', "None")
    return format_html_join(
        " ",
        '<span class="count tone-{}" title="{}">{}<span class="count-number">{}</span>'
        '<span class="visually-hidden"> {}</span></span>',
        (
            (badge.tone, f"{count} {badge.word.lower()}", icon(badge.icon), count, badge.word.lower())
            for badge, count in shown
        ),
    )


def _badge(badge: Badge, css_class: str) -> SafeString:
    return format_html('<span class="{} tone-{}">{}{}</span>', css_class, badge.tone, icon(badge.icon), badge.word)


@register.filter
def inert(text: str) -> str:
    """Text that a model or a provider wrote, without characters that change how the text around them looks."""
    return show_invisible(text)


@register.filter
def direction(text: object) -> str:
    """``ltr`` or ``rtl``, for ``<bdi dir="…">`` around a text of a model or a user."""
    return find_direction(str(text))


@register.filter
def cut(text: str) -> CutText:
    """The beginning of a text that a model or a provider wrote, for ``long_text``."""
    return cut_text(text)


@register.simple_tag
def long_text(text: CutText, address: str = "", what: str = "attempt") -> SafeString:
    """A text, and where it is cut how much of it is missing; ``address`` is that of the JSON of ``what`` it is of."""
    return mark_safe(draw_text(text, address, what))  # noqa: S308  # escaped there


def draw_text(text: CutText, address: str = "", what: str = "attempt") -> str:
    """The same as HTML for other tags."""
    if not text.left_out:
        return escape(text.text)
    more = f"{formatting.format_plural(text.left_out, 'character')} more"
    where = f' in <a href="{escape(address)}">the JSON of the {what}</a>' if address else ""
    return f'{escape(text.text)}… <span class="quiet">({more}{where})</span>'


@register.filter
def tokens(count: int) -> str:
    """A number of tokens in groups of three."""
    return formatting.format_count(count)


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as a length of time."""
    return formatting.format_duration(seconds)


@register.filter
def age(length: timedelta | None) -> str:
    """A length of time in its largest unit."""
    return formatting.format_age(length)


@register.filter
def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return formatting.format_plural(count, noun)


@register.filter
def retries(count: int) -> str:
    """``1 retry``, ``2 retries``."""
    return "1 retry" if count == 1 else f"{formatting.format_count(count)} retries"


@register.simple_tag
def cost(amount: Decimal | None, unpriced: int = 0) -> str:
    """US dollars, or a dash."""
    return formatting.format_cost(amount, unpriced)


@register.simple_tag
def ticking(seconds: float | None) -> SafeString:
    """A length of time that goes on: a script counts it on from here."""
    if seconds is None:
        return format_html("{}", formatting.NOTHING)
    return format_html('<span data-seconds="{}">{}</span>', f"{max(seconds, 0.0):.2f}", format_elapsed(seconds))


@register.simple_tag
def running_for(since: datetime | None, now: datetime) -> SafeString:
    """How long something has been running at ``now``, counted on by a script; its title says since when."""
    if since is None:
        return format_html("{}", formatting.NOTHING)
    return format_html('<span title="Since {}">{}</span>', write_moment(since), ticking((now - since).total_seconds()))


@register.simple_tag
def moment(value: datetime | None) -> SafeString:
    """A point in time with its zone: ``21 Nov 2026, 02:14:09 UTC``."""
    if value is None:
        return format_html("{}", formatting.NOTHING)
    # Digits and names of months and zones need no escaping.
    drawn = f'<time datetime="{value.isoformat(timespec="milliseconds")}">{write_moment(value)}</time>'
    return mark_safe(drawn)  # noqa: S308  # see above


@register.simple_tag
def clock(value: datetime) -> SafeString:
    """The time of day of a moment: ``02:14:09``; the whole of it is in its title."""
    text = f"{timezone.localtime(value):%H:%M:%S}"
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), write_moment(value), text)


@register.simple_tag
def ago(value: datetime, now: datetime) -> SafeString:
    """How long ago something was, in one unit; the exact time is in its title."""
    return draw_ago(value, now, timezone.get_current_timezone())


def draw_ago(value: datetime, now: datetime, zone: tzinfo) -> SafeString:
    """The same for a reader in ``zone``."""
    moment = formatting.build_moment(value, now, zone)
    # Digits and names of months and zones need no escaping.
    drawn = f'<time datetime="{moment.iso}" title="{moment.full}">{moment.text}</time>'
    return mark_safe(drawn)  # noqa: S308  # see above


def write_moment(value: datetime) -> str:
    """``21 Nov 2026, 02:14:09 UTC``, in the zone of the reader."""
    return formatting.format_moment(timezone.localtime(value))


@register.simple_tag
def is_simulated_site() -> bool:
    """Whether all runs that are started now are answered by the simulated model."""
    return is_simulated()
