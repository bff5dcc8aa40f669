"""Template tags of the run page for issues: what each says, what became of it, and what a model was told of it.

A page has them by the hundred: they are put together here and not by templates, which take several times as long.
Whatever is not ours is escaped where it is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from runs.formatting import format_count, format_plural
from runs.history.issue_links import IssueLink, join_address
from runs.history.json_lines import Listing
from runs.history.lifecycle import FixedIssues, Lifecycle, Mark
from runs.history.texts import CutText
from runs.pages.attempt_view import AttemptView, IssueView
from runs.pages.badges import SEVERITIES
from runs.templatetags.toolflow import draw_text, icon, listing, severity_icon

if TYPE_CHECKING:
    from runs.pages.live import StepChange

register = template.Library()

_LOOKS = {
    "introduced": ("plus-circle", "quiet"),
    "persisted": ("arrow-right-circle", "quiet"),
    "returned": ("arrow-uturn-left", "errored"),
    "fixed": ("check-circle", "passed"),
    "remains": ("arrow-long-right", "quiet"),
    "unlisted": ("question-mark-circle", "quiet"),
}


@register.simple_tag(takes_context=True)
def attempt_issues(context: dict[str, Any], attempt: AttemptView) -> SafeString:
    """What stands beside the output of an attempt: its issues, and those that it fixed.

    On a page of its own (``is_own_page``) links lead to the page of its run, ``run_url``.
    """
    is_own_page, run_url = context.get("is_own_page"), context.get("run_url", "")
    parts = ['<div class="attempt-issues"><h3>Issues</h3>']
    if attempt.issues:
        begin = f' start="{attempt.issue_pages.first}"' if attempt.issue_pages else ""
        document = attempt.document_address
        parts += [f"<ol{begin}>", *(_draw_issue(issue, run_url, document) for issue in attempt.issues), "</ol>"]
        parts.append(issue_pages(attempt))
        # The filter is on the page of the run.
        if not is_own_page:
            parts += [
                f'<p class="hidden-note" data-severity="{name}">{count} {name} hidden by the filter above.</p>'
                for name, count in attempt.counts
                if count
            ]
    else:
        parts.append(f'<p class="plain">{_explain_no_issues(attempt)}</p>')
    if attempt.fixed:
        parts += _draw_fixed(attempt.id, attempt.fixed, run_url)
    return mark_safe(f"{''.join(parts)}</div>")  # noqa: S308  # every part is escaped where it is drawn


@register.simple_tag
def issue_pages(attempt: AttemptView) -> SafeString:
    """Which issues of an attempt with very many are listed, and the way to the others; else nothing."""
    pages = attempt.issue_pages
    if pages is None:
        return SafeString()
    whole = format_count(pages.whole)
    if pages.number == 1:
        further = format_count(pages.whole - pages.last)
        words = f"These are the gravest {pages.last} of {whole} issues; there are {further} more."
    else:
        words = f"These are issues {format_count(pages.first)} to {format_count(pages.last)} of {whole}, by severity."
    links = []
    if pages.number > 1:
        links.append(_link_page(attempt, pages.number - 1, f"{icon('arrow-left', 14)}Graver issues", "prev"))
    if pages.has_next:
        links.append(_link_page(attempt, pages.number + 1, f"Further issues{icon('arrow-right', 14)}", "next"))
    # Away from the page of its run, as in the admin, an attempt has no pages.
    ways = f'<nav class="issue-pages" aria-label="Pages of issues">{"".join(links)}</nav>' if attempt.address else ""
    return mark_safe(  # noqa: S308  # nothing in it but numbers, addresses and our own words
        f'<div class="further-issues"><p class="quiet">{words}</p>{ways}</div>'
    )


def _link_page(attempt: AttemptView, number: int, words: str, rel: str) -> str:
    return f'<a href="{attempt.address}?issues={number}" rel="{rel}">{words}</a>'


def _explain_no_issues(attempt: AttemptView) -> str:
    if attempt.is_running:
        return "Audits run when the output arrives."
    return "None." if attempt.state in ("passed", "failed") else "None: there was no output to audit."


def _draw_fixed(id: str, fixed: FixedIssues, run_url: str) -> Iterator[str]:
    severities = " ".join(sorted(fixed.counts))
    yield f'<div class="fixed-here" data-severities="{severities}"><p class="quiet" id="{id}-fixed">'
    yield f'{icon("check-circle", 14)}Fixed here</p><ul aria-labelledby="{id}-fixed">'
    for link in fixed.links:
        linked = issue_link(link, run_url, seen_from=link.step)
        yield f'<li class="linked-issue" data-severity="{link.severity}">{linked}</li>'
    if fixed.more:
        yield f'<li class="quiet">and {format_plural(fixed.more, "issue")} more</li>'
    yield "</ul></div>"


@register.simple_tag
def issue_item(issue: IssueView, run_url: str = "") -> SafeString:
    """One issue as an item of a list; ``run_url`` away from the page of its run."""
    return mark_safe(_draw_issue(issue, run_url))  # noqa: S308  # every part is escaped there


def _draw_issue(issue: IssueView, run_url: str, document: str = "") -> str:
    """``document`` is the address of the JSON of its attempt."""
    severity = issue.severity
    text = f'<p class="issue-text">{draw_text(issue.description, document)}</p>' if issue.description else ""
    text += _draw_suggestions(issue.suggestions, issue.more_suggestions, document)
    marks = "".join([lifecycle_mark(mark, run_url) for mark in issue.lifecycle.marks]) if issue.lifecycle else ""
    return (
        f'<li class="issue" id="{issue.id}" data-severity="{severity}">{severity_icon(severity)}<div>'
        f'<p><span class="issue-title">{escape(issue.title)}</span> '
        f'<span class="issue-severity tone-{severity}">{SEVERITIES[severity].word}</span></p>{text}'
        f'<p class="issue-facts">{_draw_place(issue)} '
        f'<code class="issue-code quiet" title="Code of the issue">{escape(issue.code)}</code></p>'
        f'<p class="issue-marks" id="{issue.id}-marks">{marks}</p>{_draw_context(issue, document)}</div></li>'
    )


@register.simple_tag
def issue_suggestions(suggestions: Sequence[CutText], more: int, document: str) -> SafeString:
    """What an audit suggests, as a list; nothing if that is nothing."""
    return mark_safe(_draw_suggestions(suggestions, more, document))  # noqa: S308  # every part is escaped there


def _draw_suggestions(suggestions: Sequence[CutText], more: int, document: str) -> str:
    if not suggestions:
        return ""
    items = [f'<li class="issue-text">{draw_text(words, document)}</li>' for words in suggestions]
    if more:
        items.append(f'<li class="quiet">and {format_plural(more, "suggestion")} more</li>')
    return f"<ul>{''.join(items)}</ul>"


def _draw_place(issue: IssueView) -> str:
    if issue.place:
        words = f"{'' if issue.place.is_exact else 'missing; see '}line {issue.place.line}"
        return f'<a class="issue-place mono" href="#{issue.line_id}">{escape(issue.path or "")}, {words}</a>'
    return f'<span class="issue-place mono quiet">{escape(issue.path)}</span>' if issue.path else ""


def _draw_context(issue: IssueView, document: str) -> str:
    if not issue.context and not issue.added_fields:
        return ""
    context = _draw_values(issue.context, document) if issue.context else ""
    added = ""
    if issue.added_fields:
        added = f'<p class="quiet">Added by the audit</p>{_draw_values(issue.added_fields, document)}'
    return (
        f'<details class="issue-more" id="{issue.id}-more"><summary><span class="chevron">{icon("chevron-right", 14)}'
        f"</span>Context</summary>{context}{added}</details>"
    )


def _draw_values(values: Listing, document: str) -> str:
    if not values.is_cut:
        return listing(values)
    where = f' <a href="{escape(document)}">The JSON of the attempt</a> has all of it.' if document else ""
    return f'{listing(values)}<p class="listing-note">Only the beginning is shown.{where}</p>'


@register.simple_tag
def lifecycle_mark(mark: Mark, run_url: str = "") -> SafeString:
    """Icon, words and link of one thing that became of an issue; ``run_url`` away from the page of its run."""
    name, tone = _LOOKS[mark.kind]
    linked = escape(mark.linked)
    if mark.address:
        linked = f'<a href="{escape(join_address(run_url, mark.address))}">{linked}</a>'
    words = f"<span>{escape(mark.words)}{linked}{escape(mark.rest)}</span>"
    html = f'<span class="lifecycle tone-{tone}">{icon(name, 14)}{words}</span>'
    return mark_safe(html)  # noqa: S308  # every part is escaped above


@register.simple_tag
def issue_link(link: IssueLink, run_url: str = "", *, seen_from: int | None = None) -> SafeString:
    """An issue that stands elsewhere: icon of its severity, name and place.

    With ``seen_from``, the step on whose page part the link stands, also in which attempt it is.
    """
    place = f' at <span class="mono">{escape(link.place)}</span>' if link.place else ""
    where = ""
    if seen_from is not None:
        where = f", attempt {link.number}" if link.step == seen_from else f", step {link.step}, attempt {link.number}"
    linked = f'<a href="{escape(join_address(run_url, link.address))}">{escape(link.title)}</a>'
    html = f"{severity_icon(link.severity)}<span>{linked}{place}{where}</span>"
    return mark_safe(html)  # noqa: S308  # every part is escaped above


@register.simple_tag
def newly_told(changes: Sequence[StepChange]) -> list[Lifecycle]:
    """Issues of earlier attempts of which attempts that have just ended tell something new."""
    found: list[Lifecycle] = []
    for change in changes or ():
        newest = min((attempt.number for attempt in (*change.replaced, *change.added)), default=None)
        if newest is not None:
            found += change.step.issues.list_news(newest)
    return found
