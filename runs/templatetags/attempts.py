"""Template tags for attempts: the strip of a step, and what changed from one output to the next.

A page repeats both by the hundred: they are built in Python, and everything in them is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from html import escape
from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from runs.formatting import NOTHING, format_cost, format_count, format_duration, format_plural
from runs.history.json_lines import LONG_TEXT, Listing, show_invisible
from runs.history.output_diff import Change, DiffLine, OutputDiff
from runs.pages.attempt_view import AttemptView, IssueMark
from runs.pages.badges import STATES
from runs.pages.run_page import StepView
from runs.templatetags.toolflow import TALL, draw_marked_line, icon, issue_counts, moment, running_for, state

register = template.Library()

_SIGNS = {Change.SAME: " ", Change.ADDED: "+", Change.REMOVED: "\N{MINUS SIGN}", Change.CHANGED: "~"}
_WORDS = {Change.ADDED: "Added", Change.REMOVED: "Removed", Change.CHANGED: "Changed"}


@register.simple_tag
def attempt_strip(step: StepView) -> SafeString:
    """A chip for each attempt of a step, with its outcome; each leads to its attempt, and says whether that is open."""
    chips = "".join(_build_chip(attempt) for attempt in step.attempts)
    label = f"Attempts of step {step.index}"
    html = f'<ol class="strip" id="{step.id}-strip" data-keep-scroll aria-label="{label}">{chips}</ol>'
    return mark_safe(html)  # noqa: S308  # nothing in it but numbers and our own words


def _build_chip(attempt: AttemptView) -> str:
    badge = STATES[attempt.state]
    counts = ", ".join(f"{count} {name}" for name, count in attempt.counts if count)
    words = f"Attempt {attempt.number}: {badge.word}{f', {counts}' if counts else ''}"
    clean = " data-clean" if attempt.is_clean else ""
    return (
        f'<li><a class="strip-chip tone-{badge.tone}" id="{attempt.id}-chip" href="#{attempt.id}"{clean} '
        f'aria-expanded="{"true" if attempt.is_open else "false"}" aria-label="{words}" title="{words}">'
        f"{icon(badge.icon, 14)}<span>{attempt.number}</span></a></li>"
    )


@register.simple_tag
def attempt_summary(attempt: AttemptView, now: datetime) -> SafeString:
    """The line of an attempt: outcome, issues, duration, tokens, cost. One that runs says for how long at ``now``."""
    figures = "".join(f"<span>{figure}</span>" for figure in _list_figures(attempt, now))
    counts = f"<span>{issue_counts(attempt.counts)}</span>" if attempt.has_issues else ""
    html = (
        f'<summary id="{attempt.id}-summary"><span class="chevron">{icon("chevron-right")}</span>'
        f'<span class="attempt-name">Attempt {attempt.number}</span> {_show_state(attempt.state)} {counts}'
        f'<span class="attempt-figures">{figures}</span></summary>'
    )
    return mark_safe(html)  # noqa: S308  # nothing in it but numbers and our own words


def _list_figures(attempt: AttemptView, now: datetime) -> Iterator[str]:
    if attempt.is_running or attempt.usage is None:
        yield running_for(attempt.started_at, now)
        return
    yield format_duration(attempt.duration)
    if attempt.is_local:
        return
    if attempt.has_tokens:
        yield f'{format_count(attempt.usage.prompt)} <span class="quiet">in</span>'
        yield f'{format_count(attempt.usage.completion)} <span class="quiet">out</span>'
    else:
        yield '<span class="quiet both">tokens not reported</span>'
    yield escape(format_cost(attempt.usage.cost, attempt.usage.unpriced))


_show_state = cache(state)


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


@register.simple_tag(takes_context=True)
def output_head(context: dict[str, Any], attempt: AttemptView) -> SafeString:
    """What stands above an output: how it can be compared with the one before it, copied and downloaded."""
    is_unusable = attempt.output and not attempt.is_usable
    usual = "Output (invalid: audits did not look at it)" if attempt.state == "invalid" else "Output"
    parts = [f"<h3>{'What came back (not usable as an output)' if is_unusable else usual}</h3>"]
    if attempt.output and attempt.compared_with:
        parts.append(_draw_compare_form(context, attempt))
    if attempt.output:
        download = f"{attempt.address}?download"
        if attempt.is_compared:
            parts.append(f'<p class="part-actions">{_draw_download(download, "JSON", "the output")}</p>')
        else:
            parts.append(part_actions(attempt.output, attempt.id, "text", "the output", download))
    html = f'<div class="output-head">{"".join(parts)}</div>'
    return mark_safe(html)  # noqa: S308  # nothing in it but numbers, addresses and our own words


def _draw_compare_form(context: dict[str, Any], attempt: AttemptView) -> str:
    is_own_page = context.get("is_own_page")
    hidden = "" if is_own_page else ",".join(context.get("hidden") or ())
    kept = f'<input type="hidden" name="hide" value="{hidden}">' if hidden else ""
    address = attempt.address if is_own_page else context["page"].address
    own = attempt.address
    if is_own_page and attempt.issue_pages and attempt.issue_pages.number > 1:
        # The issues beside the output stay.
        kept += f'<input type="hidden" name="issues" value="{attempt.issue_pages.number}">'
        own += f"?issues={attempt.issue_pages.number}"
    value, pressed = ("", "true") if attempt.is_compared else (attempt.id, "false")
    return (
        f'<form method="get" class="compare-form" action="{address}#{attempt.id}">{kept}'
        f'<button type="submit" class="tool" id="{attempt.id}-compare" name="diff" value="{value}" '
        f'data-compares="{attempt.id}" data-address="{own}" aria-pressed="{pressed}">'
        f"{icon('arrows-right-left', 14)}Changes since attempt {attempt.compared_with}</button></form>"
    )


@register.simple_tag
def attempt_folds(attempt: AttemptView) -> SafeString:
    """What of an attempt that has ended is folded away: parts that are loaded when they are opened, and details."""
    parts = []
    if attempt.has_request:
        parts.append(_draw_fold(attempt, "request", "What the model saw"))
    if not attempt.is_removed:
        parts.append(_draw_fold(attempt, "input", "Input of the step"))
    if attempt.has_raw_output:
        parts.append(_draw_fold(attempt, "raw_output", "Raw output, before the sanitizer"))
    id = f"{attempt.id}-details"
    html = (
        f'<div class="folds">{"".join(parts)}<details class="fold" id="{id}"><summary id="{id}-summary">'
        f'<span class="chevron">{icon("chevron-right")}</span>Details</summary><div class="fold-body" hx-disable>'
        f'{_draw_facts(attempt)}<a class="raw-link" href="{attempt.document_address}">{icon("arrow-down-tray")}'
        "This attempt as JSON</a></div></details></div>"
    )
    return mark_safe(html)  # noqa: S308  # facts are escaped; all else is numbers, addresses and our own words


def _draw_fold(attempt: AttemptView, part: str, title: str) -> str:
    id, address = f"{attempt.id}-{part}", f"{attempt.address}{part}/"
    return (
        f'<details class="fold" id="{id}" hx-get="{address}" hx-trigger="toggle once" hx-target="find .fold-body" '
        f'hx-swap="innerHTML"><summary id="{id}-summary"><span class="chevron">{icon("chevron-right")}</span>{title}'
        f'</summary><div class="fold-body"><a class="raw-link" href="{address}">Open on a page of its own</a></div>'
        "</details>"
    )


def _draw_facts(attempt: AttemptView) -> str:
    """What else is known of an attempt, as a list of terms: times, the model's answer, plug-ins."""
    facts: list[tuple[str, str]] = [("Began", moment(attempt.started_at)), ("Ended", moment(attempt.ended_at))]
    if not attempt.is_local:
        answer = (
            ("Model that answered", attempt.model),
            ("Finish reason", attempt.finish_reason),
            ("Response", attempt.response_id),
        )
        facts += ((term, escape(show_invisible(text)) or NOTHING) for term, text in answer)
        if attempt.usage is not None and attempt.has_tokens:
            usage = attempt.usage
            sent = f"{format_count(usage.prompt)} in ({format_count(usage.cached)} cached)"
            got = f"{format_count(usage.completion)} out ({format_count(usage.reasoning)} reasoning)"
            facts.append(("Tokens", f"{sent}, {got}"))
    facts += ((escape(name), f"<code>{escape(fingerprint)}</code>") for name, fingerprint in attempt.plugins)
    rows = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in facts)
    return f'<dl class="facts">{rows}</dl>'


@register.simple_tag
def attempts_used(counted: int, most: int | None, uncounted: Mapping[str, int]) -> str:
    """How many of its attempts, ``most`` if that is known, a step has used: “2 of 4 attempts, 1 interrupted”."""
    words = format_plural(counted, "attempt") if most is None else f"{counted} of {format_plural(most, 'attempt')}"
    return ", ".join([words, *(f"{count} {state}" for state, count in uncounted.items())])


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
