"""Template tags of pages that show statistics: shares, means, and money as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from html import escape
from typing import Any, Protocol

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from runs.figures.periods import Period
from runs.pages import figures, shares
from runs.pages.badges import SEVERITIES
from runs.pages.day_charts import Frame
from runs.pages.flow_charts import Chart
from runs.templatetags.toolflow import icon

register = template.Library()


@register.filter
def share(fraction: float | None) -> str:
    """A fraction of one in whole per cent."""
    return shares.format_share(fraction)


@register.filter
def mean(value: float | None) -> str:
    """A mean of counts."""
    return shares.format_mean(value)


@register.filter
def large(count: int | None) -> str:
    """A count, short where it is long."""
    return shares.format_large(count)


@register.simple_tag(takes_context=True)
def price(context: dict[str, Any], amount: Decimal | None, unpriced: int = 0) -> str:
    """US dollars, ``≥`` where attempts are missing in them; a dash for simulated runs, which cost nothing."""
    return figures.NOTHING if context.get("is_simulated") else figures.format_cost(amount, unpriced)


@register.simple_tag
def severity_badge(name: str) -> SafeString:
    """Icon and word of a severity."""
    badge = SEVERITIES[name]
    return format_html('<span class="state tone-{}">{}{}</span>', badge.tone, icon(badge.icon), badge.word)


@register.simple_tag
def ticking(value: datetime, now: datetime) -> SafeString:
    """How long something goes on since ``value``; a script keeps counting. The exact time is in its title."""
    text = figures.format_duration((now - value).total_seconds())
    return _build_time(value, "length", text)


@register.simple_tag
def ageing(value: datetime, now: datetime) -> SafeString:
    """How long ago something was, coarsely; a script keeps it right. The exact time is in its title."""
    return _build_time(value, "age", f"{figures.format_age(max(now - value, timedelta(0)))} ago")


def _build_time(value: datetime, kind: str, text: str) -> SafeString:
    local = timezone.localtime(value)
    exact = f"{local.day} {local:%b %Y, %H:%M:%S} {local.tzname()}"
    template = '<time datetime="{}" title="{}" data-tick="{}">{}</time>'
    return format_html(template, value.isoformat(timespec="milliseconds"), exact, kind, text)


@register.simple_tag
def day_hits(frame: Frame) -> SafeString:
    """The grounds of the slots of a chart, each with a title that tells its numbers."""
    html = "".join(
        f'<rect class="day-hit" x="{hit.x}" y="{frame.top}" width="{hit.width}" height="{frame.area}">'
        f"<title>{escape(hit.title)}</title></rect>"
        for hit in frame.hits
    )
    return mark_safe(html)  # noqa: S308  # titles are escaped, the others are numbers of ours


@register.simple_tag
def day_rows(chart: Chart) -> SafeString:
    """The rows of the table behind a chart; a slot without numbers says so."""
    nothing = f'<td class="number quiet" colspan="{len(chart.columns)}">nothing ran</td>'
    html = "".join(
        f'<tr><th scope="row">{row.words}</th>'
        f"{_build_cells(row.cells) or nothing}"
        f"<td>{escape(row.note or figures.NOTHING)}</td></tr>"
        for row in chart.rows
    )
    return mark_safe(html)  # noqa: S308  # what isn't written here is escaped


class FlowDays(Protocol):
    """What one flow came to, day by day."""

    @property
    def title(self) -> str: ...
    @property
    def cells(self) -> tuple[str, ...]: ...


@register.simple_tag
def flow_days(period: Period, rows: Sequence[FlowDays]) -> SafeString:
    """Head and rows of the table behind small drawings: a flow a row, a day a column."""
    days = "".join(f'<th scope="col">{slot.first.day} {slot.first:%b}</th>' for slot in period.slots)
    # Up to a hundred flows have thirty days each: their cells carry nothing but the number.
    body = "".join(
        f'<tr><th scope="row">{escape(row.title)}</th><td>{"</td><td>".join(map(escape, row.cells))}</td></tr>'
        for row in rows
    )
    html = f'<thead><tr><th scope="col">Flow</th>{days}</tr></thead><tbody>{body}</tbody>'
    return mark_safe(html)  # noqa: S308  # what isn't written here is escaped


def _build_cells(cells: Iterable[str]) -> str:
    return "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
