"""Template tags of pages that show statistics: shares, means, and money as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from html import escape
from typing import Any, Protocol

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from runs import formatting
from runs.pages.badges import SEVERITIES
from runs.pages.day_charts import DayColumns, DayLines, Frame
from runs.pages.flow_charts import Chart
from runs.statistics.sums import Period
from runs.templatetags.toolflow import icon, write_moment

register = template.Library()


@register.filter
def share(fraction: float | None) -> str:
    """A fraction of one in whole per cent."""
    return formatting.format_share(fraction)


@register.filter
def mean(value: float | None) -> str:
    """A mean of counts."""
    return formatting.format_mean(value)


@register.filter
def large(count: int | None) -> str:
    """A count, short where it is long."""
    return formatting.format_large(count)


@register.simple_tag(takes_context=True)
def price(context: dict[str, Any], amount: Decimal | None, unpriced: int = 0) -> str:
    """US dollars, ``≥`` where attempts are missing in them; a dash for simulated runs, which cost nothing."""
    return formatting.NOTHING if context.get("is_simulated") else formatting.format_cost(amount, unpriced)


@register.simple_tag
def severity_badge(name: str) -> SafeString:
    """Icon and word of a severity."""
    badge = SEVERITIES[name]
    return format_html('<span class="state tone-{}">{}{}</span>', badge.tone, icon(badge.icon), badge.word)


@register.simple_tag
def ticking_since(value: datetime, now: datetime) -> SafeString:
    """How long something goes on since ``value``; a script keeps counting. The exact time is in its title."""
    text = formatting.format_duration((now - value).total_seconds())
    return _build_time(value, "length", text)


@register.simple_tag
def ageing(value: datetime, now: datetime) -> SafeString:
    """How long ago something was, coarsely; a script keeps it right. The exact time is in its title."""
    return _build_time(value, "age", f"{formatting.format_age(max(now - value, timedelta(0)))} ago")


def _build_time(value: datetime, kind: str, text: str) -> SafeString:
    template = '<time datetime="{}" title="{}" data-tick="{}">{}</time>'
    return format_html(template, value.isoformat(timespec="milliseconds"), write_moment(value), kind, text)


@register.simple_tag
def day_plot(chart: Chart) -> SafeString:
    """A chart over days: its vertical axis, and beside it the drawing on its grid.

    A page has several, of up to ninety slots each: they are put together here and not by a template.
    """
    frame = chart.drawing.frame
    labels = "".join(
        f'<text x="100%" dx="-8" y="{tick.at}" dy="4" text-anchor="end">{escape(tick.label)}</text>'
        for tick in frame.ticks
    )
    name = f"{escape(chart.title)} by {frame.period.unit}; the table below has the numbers"
    html = (
        f'<svg class="day-axis" aria-hidden="true" height="{frame.height}">{labels}</svg>'
        f'<svg class="day-plot" role="img" aria-label="{name}" width="100%" height="{frame.height}">'
        f'{"".join(_draw_frame(frame))}<svg class="day-lines" aria-hidden="true" x="0" y="{frame.top}" width="100%" '
        f'height="{frame.area}" viewBox="{frame.box}" preserveAspectRatio="none">{"".join(_draw_shapes(chart))}</svg>'
        f"{''.join(_draw_dots(chart))}{''.join(_draw_hits(frame))}</svg>"
    )
    return mark_safe(html)  # noqa: S308  # what isn't written here is escaped, or geometry of ours


def _draw_frame(frame: Frame) -> Iterator[str]:
    """The grid, the labels of days, and marks of what changed."""
    for tick in frame.ticks:
        yield f'<line class="day-grid" x1="0" x2="100%" y1="{tick.at}" y2="{tick.at}"/>'
    for day in frame.days:
        minor = " minor" if day.is_minor else ""
        yield f'<text class="day-label{minor}" x="{day.at}" y="{frame.days_y}" text-anchor="middle">{day.label}</text>'
    for mark in frame.marks:
        place = 'dx="-5"' if mark.is_at_end else 'dx="5"'
        end = ' text-anchor="end"' if mark.is_at_end else ""
        label = (
            f'<text x="{mark.at}" {place} y="{frame.marks_y}"{end}>{escape(mark.label)}</text>' if mark.label else ""
        )
        yield (
            f'<g class="day-mark"><title>{escape(mark.title)}</title>'
            f'<line x1="{mark.at}" x2="{mark.at}" y1="4" y2="{frame.bottom}"/>{label}</g>'
        )


def _draw_shapes(chart: Chart) -> Iterator[str]:
    """Columns or lines, which are stretched to the width of the page."""
    if isinstance(chart.drawing, DayColumns):
        for fill in chart.drawing.fills:
            yield f'<path class="fill-{fill.kind}" d="{fill.path}"/>'
        return
    for line in chart.drawing.lines:
        for points in line.paths:
            yield f'<polyline class="line-{line.kind}" points="{points}" vector-effect="non-scaling-stroke"/>'


def _draw_dots(chart: Chart) -> Iterator[str]:
    for line in chart.drawing.lines if isinstance(chart.drawing, DayLines) else ():
        for dot in line.dots:
            yield f'<circle class="fill-{line.kind}" cx="{dot.x}" cy="{dot.y}" r="2.5"/>'


def _draw_hits(frame: Frame) -> Iterator[str]:
    """The grounds of the slots, each with a title that tells its numbers."""
    for hit in frame.hits:
        yield (
            f'<rect class="day-hit" x="{hit.x}" y="{frame.top}" width="{hit.width}" height="{frame.area}">'
            f"<title>{escape(hit.title)}</title></rect>"
        )


@register.simple_tag
def day_rows(chart: Chart) -> SafeString:
    """The rows of the table behind a chart; a slot without numbers says so."""
    nothing = f'<td class="number quiet" colspan="{len(chart.columns)}">nothing ran</td>'
    html = "".join(
        f'<tr><th scope="row">{row.words}</th>'
        f"{_build_cells(row.cells) or nothing}"
        f"<td>{escape(row.note or formatting.NOTHING)}</td></tr>"
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
