"""Template tags for outputs: what can be done with a listing."""

from __future__ import annotations

from html import escape

from django import template
from django.utils.safestring import SafeString, mark_safe

from runs.formatting import format_plural
from runs.history.json_lines import Listing
from runs.templatetags.toolflow import icon

register = template.Library()


@register.simple_tag
def part_actions(content: Listing, prefix: str, id: str, what: str, download: str) -> SafeString:
    """Buttons above a part that is shown as a listing: to copy it, unless it is cut, and to download it.

    The listing is in the element ``prefix-id``; ``what`` names it.
    """
    what = escape(what)
    if content.is_cut:
        lines = format_plural(len(content.lines), "line")
        copy, words = f'<span class="quiet">Only the beginning is shown, {lines}.</span>', "all of it"
    else:
        words = "JSON"
        copy = (
            f'<button type="button" class="copy" data-copies="{prefix}-{id}" hidden>{icon("clipboard-document", 14)}'
            f'Copy<span class="visually-hidden"> {what}</span></button>'
        )
    return mark_safe(  # noqa: S308  # escaped above; all else is numbers and our own words
        f'<p class="part-actions">{copy} {_draw_download(download, words, what)}</p>'
    )


def _draw_download(address: str, words: str, what: str) -> str:
    return (
        f'<a class="part-download" href="{escape(address)}">{icon("arrow-down-tray", 14)}Download {words}'
        f'<span class="visually-hidden">: {what}</span></a>'
    )
