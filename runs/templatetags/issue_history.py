"""Template tags of the run page for what became of issues and what a model was told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from runs.pages.issue_lifecycle import Lifecycle, Mark
from runs.pages.issue_links import IssueLink
from runs.templatetags.toolflow import icon, severity_icon

if TYPE_CHECKING:
    from runs.pages.live import StepChange

register = template.Library()

MOST_LINKS = 20
"""Issues that one line of links names; it says how many more there are."""

_LOOKS = {
    "introduced": ("plus-circle", "quiet"),
    "persisted": ("arrow-right-circle", "quiet"),
    "returned": ("arrow-uturn-left", "errored"),
    "fixed": ("check-circle", "passed"),
    "remains": ("arrow-long-right", "quiet"),
}


@register.simple_tag
def lifecycle_mark(mark: Mark, run_url: str = "") -> SafeString:
    """Icon, words and link of one thing that became of an issue; ``run_url`` away from the page of its run."""
    name, tone = _LOOKS[mark.kind]
    linked: str = escape(mark.linked)
    if mark.anchor:
        linked = f'<a href="{escape(run_url)}#{escape(mark.anchor)}">{linked}</a>'
    words = f"<span>{escape(mark.words)}{linked}{escape(mark.rest)}</span>"
    html = f'<span class="lifecycle tone-{tone}">{icon(name, 14)}{words}</span>'
    return mark_safe(html)  # noqa: S308  # every part is escaped above


@register.simple_tag
def issue_link(link: IssueLink, run_url: str = "", *, seen_from: int | None = None) -> SafeString:
    """An issue that stands elsewhere: icon of its severity, name and place.

    With ``seen_from``, the step on whose page part the link stands, also in which attempt it is.
    """
    place = format_html(' at <span class="mono">{}</span>', link.place) if link.place else ""
    where = ""
    if seen_from is not None:
        where = f", attempt {link.number}" if link.step == seen_from else f", step {link.step}, attempt {link.number}"
    html = '{}<span><a href="{}#{}">{}</a>{}{}</span>'
    return format_html(html, severity_icon(link.severity), run_url, link.anchor, link.title, place, where)


@register.filter
def first_links(links: Sequence[IssueLink]) -> Sequence[IssueLink]:
    """As many links as a line names."""
    return links[:MOST_LINKS]


@register.filter
def further_links(links: Sequence[IssueLink]) -> int:
    """How many links a line does not name."""
    return max(len(links) - MOST_LINKS, 0)


@register.filter
def severities(links: Sequence[IssueLink]) -> str:
    """The severities of some issues, each once: what the severity filter looks at."""
    return " ".join(sorted({link.severity for link in links}))


@register.simple_tag
def newly_told(changes: Sequence[StepChange]) -> list[Lifecycle]:
    """Issues of earlier attempts of which attempts that have just ended tell something new."""
    found = []
    for change in changes or ():
        newest = min((attempt.number for attempt in (*change.replaced, *change.added)), default=None)
        if newest is not None:
            known = change.step.issues.lifecycles.values()
            found += [lifecycle for lifecycle in known if lifecycle.number < newest <= lifecycle.told_by]
    return found
