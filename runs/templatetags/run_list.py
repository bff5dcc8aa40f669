"""Rows of the list of runs, and the saved views above it.

A page has fifty rows of twelve cells. They are put together here and not by a template, which takes several times as
long; whatever is not ours is escaped where it is put in.
"""

from __future__ import annotations

from datetime import datetime, tzinfo
from functools import cache, lru_cache
from html import escape
from typing import Any

from django import template
from django.template.context import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from runs import formatting
from runs.history.issue_links import anchor_attempt
from runs.history.json_lines import show_invisible
from runs.pages.run_list import RunList, RunRow
from runs.pages.saved_views import ViewTabs, load_view_tabs
from runs.search.excerpts import Piece
from runs.templatetags.toolflow import draw_ago, issue_counts, priority, state

register = template.Library()

COLUMNS = 10
"""Of the table, without the box to choose a run by."""
MAX_LABELS = 3
"""Labels of a run that its row shows; the others are counted."""

_draw_state = cache(state)
_draw_counts = lru_cache(maxsize=2_000)(issue_counts)
_NOTHING = f'<span class="quiet">{formatting.NOTHING}</span>'


@register.simple_tag(takes_context=True)
def can_choose_runs(context: Context) -> bool:
    """Whether the viewer may do something to several runs at once."""
    perms = context["perms"]["runs"]
    return bool(perms["add_run"] or perms["change_run"])


@register.simple_tag(takes_context=True)
def load_views(context: Context, page: RunList) -> ViewTabs:
    """The saved views that the viewer may choose from."""
    request = context["request"]
    return load_view_tabs(request.user, page.filters, request.GET)


@register.simple_tag
def run_rows(page: RunList, can_choose: bool) -> SafeString:
    """The rows of a page, with a box to choose each run by if the viewer ``can_choose``."""
    begin, _, end = reverse("runs:page", args=[0]).rpartition("0")
    zone = timezone.get_current_timezone()
    rows = (_draw_row(row, f"{begin}{row.run.pk}{end}", page.now, zone, can_choose=can_choose) for row in page.rows)
    return mark_safe("".join(rows))  # noqa: S308  # every part is escaped in _draw_row


def _draw_row(row: RunRow, url: str, now: datetime, zone: tzinfo, *, can_choose: bool) -> str:
    run = row.run
    box = (
        f'<td class="choose"><input type="checkbox" form="bulk" name="run" value="{run.pk}" '
        f'aria-label="Choose run #{run.pk}"></td>'
        if can_choose
        else ""
    )
    user = escape(show_invisible(run.user_name)) if run.user_name else _NOTHING
    waiting = f'<div class="quiet" title="{escape(show_invisible(run.waiting_for))}">waiting</div>'
    return (
        f'<tr>{box}<th scope="row"><a class="run-name" href="{url}"><span class="run-title">{escape(row.flow_title)}'
        f'</span> <span class="quiet">#{run.pk}, v{run.version_number}</span></a>{priority(run.priority)}'
        f"{_draw_labels(tuple(run.labels))}</th>"
        f"<td>{_draw_state(row.state)}{waiting if run.waiting_for else ''}</td>"
        f"<td>{_draw_segments(row.segments, run.steps_passed, run.step_count)}</td>"
        f'<td class="number">{formatting.format_count(run.attempt_count)}</td>'
        f"<td>{_draw_counts(row.counts)}</td>"
        f'<td class="number">{formatting.format_duration(row.duration)}</td>'
        f'<td class="number">{formatting.format_count(run.total_tokens)}</td>'
        f'<td class="number">{_draw_cost(run)}</td>'
        f'<td class="who">{user}</td>'
        f'<td class="number quiet">{draw_ago(run.created_at, now, zone)}</td></tr>'
        f"{_draw_excerpts(row, url, can_choose=can_choose) if row.excerpts else ''}"
    )


def _draw_excerpts(row: RunRow, url: str, *, can_choose: bool) -> str:
    """A row below that of the run: where in it the words stand that were searched for."""
    lines = []
    for excerpt in row.excerpts:
        words = "".join(_draw_piece(piece) for piece in excerpt.pieces)
        place = f'<a href="{url}#{anchor_attempt(excerpt.step, excerpt.attempt)}">{excerpt.place}</a>'
        lines.append(f"<p>{place} <span>{words}</span></p>")
    box = '<td class="choose"></td>' if can_choose else ""
    return f'<tr class="excerpts">{box}<td colspan="{COLUMNS}">{"".join(lines)}</td></tr>'


def _draw_piece(piece: Piece) -> str:
    text = escape(show_invisible(piece.text))
    return f"<mark>{text}</mark>" if piece.is_marked else text


@lru_cache(maxsize=2_000)
def _draw_segments(segments: tuple[str, ...], passed: int, count: int) -> str:
    drawn = "".join(f'<span class="segment segment-{segment}"></span>' for segment in segments)
    return (
        f'<span class="segments" aria-hidden="true">{drawn}</span>'
        f'<span class="visually-hidden">{passed} of {count} passed</span>'
    )


def _draw_cost(run: Any) -> str:
    if run.is_simulated:
        return '<span class="quiet">simulated</span>'
    return formatting.format_cost(run.cost, run.unpriced_count)


@lru_cache(maxsize=2_000)
def _draw_labels(labels: tuple[str, ...]) -> str:
    if not labels:
        return ""
    shown = "".join(
        f'<a class="label" href="{reverse("runs:list")}?{escape(urlencode({"label": label}))}">'
        f'<span class="visually-hidden">Label </span>{escape(show_invisible(label))}</a>'
        for label in labels[:MAX_LABELS]
    )
    left = labels[MAX_LABELS:]
    if left:
        names = escape(show_invisible(", ".join(left)))
        shown += f'<span class="label label-more" title="{names}">+{len(left)}</span>'
    return f'<span class="labels">{shown}</span>'
