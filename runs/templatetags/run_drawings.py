"""The parts of a run's charts that are there for each attempt, and others that are there several times.

A run may have two hundred of them, with thirty values each: they are put together here and not by a template, which
takes several times as long. Whatever is not ours is escaped where it is put in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from django import template
from django.utils.safestring import SafeString, mark_safe

from runs.formatting import NOTHING, format_count, format_plural
from runs.history.retry_cost import BillRow
from runs.pages.token_columns import Column, TokenColumns
from runs.pages.waterfall import Waterfall, WaterfallRow

register = template.Library()


@register.simple_tag
def waterfall_ticks(chart: Waterfall) -> SafeString:
    """The lines of the time axis, with what they say."""
    return _join(
        f'<g class="tick"><line class="grid" x1="{tick.at}" x2="{tick.at}" y1="20" y2="{chart.height}"/>'
        f'<text x="{tick.at}" y="11" text-anchor="middle">{tick.label}</text></g>'
        for tick in chart.ticks
    )


@register.simple_tag
def token_ticks(chart: TokenColumns) -> SafeString:
    """What the lines of the axis of tokens say."""
    return _join(f'<text x="36" y="{tick.at}" dy="4" text-anchor="end">{tick.label}</text>' for tick in chart.ticks)


@register.simple_tag
def token_grid(chart: TokenColumns) -> SafeString:
    """The lines of the axis of tokens."""
    return _join(f'<line class="grid" x1="0" x2="100%" y1="{tick.at}" y2="{tick.at}"/>' for tick in chart.ticks)


@register.simple_tag
def waterfall_labels(chart: Waterfall) -> SafeString:
    """What stands left of the bars: the step where one begins, and a link to each attempt."""
    return _join(_draw_label(row) for row in chart.rows)


def _draw_label(row: WaterfallRow) -> str:
    span = row.span
    name = escape(span.step_name)
    return (
        f'<li><span class="name" title="{name}">{f"{span.step}. {name}" if row.begins_step else ""}</span>'
        f'<a id="bar-{row.anchor}" href="#{row.anchor}" aria-label="Step {span.step}, attempt {span.number}">'
        f"{span.number}</a></li>"
    )


@register.simple_tag
def waterfall_bars(chart: Waterfall) -> SafeString:
    """A bar for each attempt, with the wait before it and how long it took, or takes so far."""
    return _join(_draw_bar(row) for row in chart.rows)


def _draw_bar(row: WaterfallRow) -> str:
    span = row.span
    did = "running" if row.seconds else f"{row.outcome_word} after {row.duration}"
    waited = f", waited {escape(row.waited)}" if row.waited else ""
    at = f'y1="{row.middle}" y2="{row.middle}"'
    wait = f'<line class="wait" x1="{row.wait_x}" x2="{row.x}" {at}/>' if row.wait_x else ""
    if row.seconds:
        ahead = f'<line class="ahead" x1="{row.end}" x2="100%" {at}/>'
        label = (
            f'<text x="100%" dx="6" y="{row.baseline}">{row.sign} '
            f'<tspan data-seconds="{row.seconds}">{row.duration}</tspan></text>'
        )
    else:
        ahead = ""
        label = f'<text x="{row.end}" dx="6" y="{row.baseline}">{row.sign} {row.duration}</text>'
    return (
        f'<g class="row"><title>Step {span.step}, attempt {span.number}: {did}{waited}</title>{wait}{ahead}'
        f'<rect class="bar bar-{span.outcome}" x="{row.x}" y="{row.y}" width="{row.width}" height="12" rx="2"/>'
        f"{label}</g>\n"
    )


@register.simple_tag
def waterfall_table(chart: Waterfall) -> SafeString:
    """The rows of the table behind the bars."""
    return _join(
        f"<tr><td>{row.span.step}. {escape(row.span.step_name)}</td><td>{row.span.number}</td>"
        f"<td>{row.outcome_word}</td><td>{escape(row.waited) or NOTHING}</td>"
        f"<td>{NOTHING if row.seconds else row.duration}</td></tr>"
        for row in chart.rows
    )


@register.simple_tag
def token_stacks(chart: TokenColumns) -> SafeString:
    """A stack for each attempt, with its number of tokens and the attempt below it."""
    return _join(_draw_stack(column, chart.labels_y) for column in chart.columns)


def _draw_stack(column: Column, labels_y: str) -> str:
    tokens = column.tokens
    segments = "".join(
        f'<rect class="{part.kind}" x="{column.x}" y="{part.y}" width="{column.width}" height="{part.height}"/>'
        for part in column.segments
    )
    at = f'x="{column.middle}" text-anchor="middle"'
    return (
        f'<g class="column"><title>{escape(column.title)}</title>{segments}'
        f'<text {at} y="{column.label_y}">{column.label}</text>'
        f'<text class="name" {at} y="{labels_y}">{tokens.step}.{tokens.number}</text></g>\n'
    )


@register.simple_tag
def token_table(chart: TokenColumns) -> SafeString:
    """The rows of the table behind the stacks."""
    return _join(_draw_token_row(column) for column in chart.columns)


def _draw_token_row(column: Column) -> str:
    tokens = column.tokens
    if tokens.is_known:
        numbers = (tokens.prompt, tokens.cached, tokens.completion, tokens.reasoning)
        cells = "".join(f"<td>{format_count(number)}</td>" for number in numbers)
    else:
        cells = '<td colspan="4">not reported</td>'
    return f"<tr><td>{tokens.step}</td><td>{tokens.number}</td>{cells}</tr>"


@register.simple_tag
def bill_bar(parts: Sequence[BillRow]) -> SafeString:
    """A rectangle for each part of a retry bill."""
    return _join(
        f'<rect class="part-{part.name}" x="{part.x}" width="{part.width}" height="10">'
        f"<title>{part.title}: {part.share}</title></rect>"
        for part in parts
    )


@register.simple_tag
def bill_legend(parts: Sequence[BillRow], is_simulated: bool) -> SafeString:
    """The parts of a retry bill that have attempts; what is simulated costs nothing worth telling."""
    return _join(
        f'<li><svg width="10" height="10"><rect class="part-{part.name}" width="10" height="10" rx="2"/></svg>'
        f'<span>{part.title}</span> <span class="quiet">{format_plural(part.attempts, "attempt")}, {part.tokens} tokens'
        f"{'' if is_simulated else f', {escape(part.cost)}'}</span></li>"
        for part in parts
        if part.attempts
    )


@register.simple_tag
def bill_table(parts: Sequence[BillRow]) -> SafeString:
    """The rows of the table behind a retry bill."""
    return _join(
        f'<tr><th scope="row">{part.title}</th><td>{part.attempts}</td><td>{part.tokens}</td>'
        f"<td>{escape(part.cost)}</td><td>{part.share}</td></tr>"
        for part in parts
    )


def _join(parts: Iterable[str]) -> SafeString:
    return mark_safe("".join(parts))  # noqa: S308  # names and reasons are escaped; all else is numbers and our own words
