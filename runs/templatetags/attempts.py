"""Template tags for outputs: what can be done with a listing, and what changed from one output to the next."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from django import template
from django.utils.safestring import SafeString, mark_safe

from runs.formatting import format_plural
from runs.history.json_lines import LONG_TEXT, Listing
from runs.history.output_diff import Change, DiffLine, OutputDiff
from runs.pages.attempt_view import IssueMark
from runs.templatetags.toolflow import TALL, draw_marked_line, icon

register = template.Library()

_SIGNS = {Change.SAME: " ", Change.ADDED: "+", Change.REMOVED: "\N{MINUS SIGN}", Change.CHANGED: "~"}
_WORDS = {Change.ADDED: "Added", Change.REMOVED: "Removed", Change.CHANGED: "Changed"}


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


@register.simple_tag
def change_count(count: int, change: str) -> SafeString:
    """How many values were added, removed or changed, with the sign of their lines; nothing for none."""
    if not count:
        return SafeString()
    kind = Change(change)
    html = f'<span class="diff-count diff-{kind}"><b aria-hidden="true">{_SIGNS[kind]}</b> {count} {kind}</span>'
    return mark_safe(html)  # noqa: S308  # nothing in it but a number and our own words


@register.simple_tag
def output_diff(
    diff: OutputDiff, prefix: str = "", marks: Mapping[int, tuple[IssueMark, ...]] | None = None
) -> SafeString:
    """The lines of an output with what changed. Those with ``marks`` carry the same ids and bars as in a listing."""
    parts = []
    count = length = 0
    for block in diff.blocks:
        lines = "".join(_build_line(line, prefix, marks or {}) for line in block.lines)
        if block.is_folded:
            summary = f'<summary><span class="chevron">{icon("chevron-right", 14)}</span>… {len(block.lines)} unchanged'
            lines = f'<details class="diff-fold">{summary}</summary>{lines}</details>'
        else:
            count += len(block.lines)
            length += sum(len(part.text) for line in block.lines for part in line.parts)
        parts.append(lines)
    tall = ' class="listing diff tall" tabindex="0"' if count > TALL or length > LONG_TEXT else ' class="listing diff"'
    return mark_safe(f"<div{tall}>{''.join(parts)}</div>")  # noqa: S308  # every part is escaped in _build_line


def _build_line(line: DiffLine, prefix: str, marks: Mapping[int, tuple[IssueMark, ...]]) -> str:
    key = f'<span class="key">{escape(line.key)}</span>: ' if line.key else ""
    if line.change is Change.CHANGED:
        shown = "".join(_build_part(part.text, part.change) for part in line.parts)
    else:
        shown = escape(line.parts[0].text)
    word = f'<span class="visually-hidden">{_WORDS[line.change]}: </span>' if line.change in _WORDS else ""
    sign = f'<span class="diff-sign" aria-hidden="true">{_SIGNS[line.change]}</span>'
    text = f"{sign}{word}{' ' * line.indent}{key}{shown}"
    number = f' data-number="{line.number}"' if line.number is not None else ""
    own_marks = marks.get(line.number, ()) if line.number is not None else ()
    if line.number is None or not own_marks:
        return f'<span class="line diff-{line.change}"{number}>{text}\n</span>'
    return draw_marked_line(f'<span class="line diff-{line.change}"{number}', text, prefix, line.number, own_marks)


def _build_part(text: str, change: Change) -> str:
    if change is Change.REMOVED:
        return f"<del>{escape(text)}</del>"
    return f"<ins>{escape(text)}</ins>" if change is Change.ADDED else escape(text)
