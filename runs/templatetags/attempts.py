"""Template tags for attempts: the strip of a step, and what changed from one output to the next.

A page repeats both by the hundred: they are built in Python, and everything in them is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache

from django import template
from django.utils.html import conditional_escape, escape, format_html
from django.utils.safestring import SafeString, mark_safe

from runs.pages.attempt_view import AttemptView, IssueMark
from runs.pages.badges import SEVERITIES, STATES
from runs.pages.figures import NOTHING, format_cost, format_count, format_duration, format_plural
from runs.pages.json_lines import LONG_TEXT, show_invisible
from runs.pages.output_diff import Change, DiffLine, OutputDiff
from runs.pages.run_page import StepView
from runs.templatetags.toolflow import TALL, icon, issue_counts, moment, running_for, state

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
def attempt_fold(attempt: AttemptView, part: str, title: str) -> SafeString:
    """A part of an attempt that is folded away, and loaded when it is opened."""
    id, address = f"{attempt.id}-{part}", f"{attempt.address}{part}/"
    html = (
        f'<details class="fold" id="{id}" hx-get="{address}" hx-trigger="toggle once" hx-target="find .fold-body" '
        f'hx-swap="innerHTML"><summary id="{id}-summary"><span class="chevron">{icon("chevron-right")}</span>{title}'
        f'</summary><div class="fold-body"><a class="raw-link" href="{address}">Open on a page of its own</a></div>'
        "</details>"
    )
    return mark_safe(html)  # noqa: S308  # nothing in it but numbers and our own words


@register.simple_tag
def attempts_used(counted: int, most: int, interrupted: int) -> str:
    """How many of its attempts a step has used: “2 of 4 attempts, 1 interrupted”."""
    words = f"{counted} of {format_plural(most, 'attempt')}"
    return f"{words}, {interrupted} interrupted" if interrupted else words


@register.simple_tag
def attempt_facts(attempt: AttemptView) -> SafeString:
    """What else is known of an attempt, as a list of terms: times, the model's answer, plug-ins."""
    facts: list[tuple[str, str]] = [("Began", moment(attempt.started_at)), ("Ended", moment(attempt.ended_at))]
    if not attempt.is_local:
        answer = (
            ("Model that answered", attempt.model),
            ("Finish reason", attempt.finish_reason),
            ("Response", attempt.response_id),
        )
        facts += ((term, show_invisible(text) or NOTHING) for term, text in answer)
        if attempt.usage is not None and attempt.has_tokens:
            usage = attempt.usage
            sent = f"{format_count(usage.prompt)} in ({format_count(usage.cached)} cached)"
            got = f"{format_count(usage.completion)} out ({format_count(usage.reasoning)} reasoning)"
            facts.append(("Tokens", f"{sent}, {got}"))
    facts += ((name, format_html("<code>{}</code>", fingerprint)) for name, fingerprint in attempt.plugins)
    rows = "".join(f"<dt>{escape(term)}</dt><dd>{conditional_escape(text)}</dd>" for term, text in facts)
    return mark_safe(f'<dl class="facts">{rows}</dl>')  # noqa: S308  # escaped above


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
    text = f"{sign}{word}{' ' * line.indent}{key}{shown}\n"
    number = f' data-number="{line.number}"' if line.number is not None else ""
    own_marks = marks.get(line.number, ()) if line.number is not None else ()
    if not own_marks:
        return f'<span class="line diff-{line.change}"{number}>{text}</span>'
    severities = " ".join(sorted({mark.severity for mark in own_marks}))
    label = escape("; ".join(f"{SEVERITIES[mark.severity].word}: {mark.title}" for mark in own_marks))
    return (
        f'<span class="line diff-{line.change}"{number} id="{prefix}-l{line.number}" data-marks="{severities}">'
        f'<a class="line-link" href="#{own_marks[0].issue_id}" title="{label}" '
        f'aria-label="Line {line.number}: {label}"></a>{text}</span>'
    )


def _build_part(text: str, change: Change) -> str:
    if change is Change.REMOVED:
        return f"<del>{escape(text)}</del>"
    return f"<ins>{escape(text)}</ins>" if change is Change.ADDED else escape(text)
