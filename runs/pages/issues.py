"""Issues across runs: the page of their groups, and the issues of one group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from flows.engine.audits import AUDIT_ERROR, MORE_ISSUES
from flows.engine.history import Severity
from flows.engine.json_values import dump_json
from flows.models import Flow, FlowVersion
from runs.filter_fields import parse_run_number
from runs.formatting import format_plural
from runs.history.issues import address_issue, name_issue
from runs.history.texts import SHORT_TEXT, cut_text, show_invisible
from runs.issue_groups import (
    DEFAULT_PERIOD,
    NO_VALUE,
    ORDERS,
    PERIODS,
    Cursor,
    FoundIssue,
    IssueFilters,
    IssueGroup,
    RanVersion,
    fetch_groups,
    fetch_issues,
    fetch_ran_versions,
    fetch_values,
    load_details,
    search_groups,
    trace_issues,
)
from runs.models import Run
from runs.pages.access import require_viewer
from runs.pages.badges import LIFECYCLE, SEVERITIES, STATES
from runs.pages.flow_figures import plot_sparkline
from runs.pages.run_list import list_chips, list_problems
from runs.search.words import split_words

MAX_CARDS, MAX_ROWS = 12, 5
"""Audits on a page, and groups of one of several audits."""
PAGE_SIZE = 20
"""Issues of a group that are shown at a time."""
MAX_VALUES, SHOWN_VALUES, MAX_VALUE_LENGTH = 12, 4, 48
"""Newest issues of a group whose values are counted, values that are shown, and characters of one."""
SHOWN_VERSIONS = 4
MIN_RUNS_WITHOUT = 10
"""Runs of later versions without an issue, before it is called gone."""
MAX_SUGGESTIONS = 3
SLOT_DAYS: Mapping[int, int] = {30: 2, 90: 6}
"""Days of one bar, where that is more than one."""
_RANKS = {name: rank for rank, name in enumerate(SEVERITIES)}
_BRACES = re.compile(r"(\{\{|\}\})|\{\s*([^{}]*?)\s*\}")

Card = Sequence[IssueGroup]
"""The groups of one audit of a step, or of one code of ToolFlow's own."""


@require_viewer
def show_issues(request: HttpRequest) -> HttpResponse:
    """Groups of issues; with ``of``, the issues of one: a page of its own, or the part that a group opens to."""
    if "of" in request.GET:
        is_part = request.headers.get("HX-Request") == "true"
        return render(request, "runs/issue_rows.html", {**load_issue_rows(request.GET), "is_part": is_part})
    return render(request, "runs/issues.html", load_issues_page(request.GET))


# Groups


def load_issues_page(query: Mapping[str, str]) -> dict[str, Any]:
    """What the page shows for a query string; what is not valid in it gives a sentence and is left out."""
    filters = IssueFilters(query)
    number, before = parse_run_number(query.get("page", "")) or 1, parse_run_number(query.get("before", ""))
    searched = fetch_issues(filters, before=Cursor(before) if before else None) if "q" in filters.values else None
    groups = fetch_groups(filters) if searched is None else search_groups(searched.issues)
    cards = _sort_cards(groups, filters.values.get("order", "severity"))
    shown = cards[(number - 1) * MAX_CARDS : number * MAX_CARDS]
    most = MAX_ROWS if len(cards) > 1 else MAX_CARDS * MAX_ROWS
    rows = [group for card in shown for group in card[:most]]
    if searched is None:
        load_details(rows, filters)
    flows = {flow.pk: flow for flow in Flow.objects.only("name", "title").order_by("title", "pk")}
    builder = _Builder(filters, flows, rows)
    further_url, left = "", max(len(cards) - number * MAX_CARDS, 0)
    if left:
        further_url = _build_url(filters, page=number + 1, before=before or "")
    elif searched and searched.next:
        further_url = _build_url(filters, before=searched.next.run)
    return {
        "cards": [builder.build_card(card[:most], card) for card in shown],
        "issue_count": sum(group.issues for group in groups),
        "group_count": len(groups),
        "searched": searched,
        "further_url": further_url,
        "left": left,
        "newest_url": _build_url(filters) if number > 1 or before else "",
        "set": filters.texts,
        "flows": flows.values(),
        "severities": list(SEVERITIES.items()),
        "periods": PERIODS.items(),
        "default_period": DEFAULT_PERIOD,
        "days": filters.days,
        "orders": [(word, _build_url(filters, order=name), name) for name, word in ORDERS.items()],
        "chips": list_chips(filters, {flow.name: flow.title for flow in flows.values()}, _build_address),
        "warnings": list_problems(filters, ("page", "before")),
        "suggestions": [] if groups else _suggest(filters),
        "folded_count": len(filters.values.keys() & {"version", "step", "audit", "code"}),
        "longer_url": "" if filters.days == max(PERIODS.values()) else _build_url(filters, period="90d"),
    }


def _build_address(query: str) -> str:
    return reverse("runs:issues") + (f"?{query}" if query else "")


def _build_url(filters: IssueFilters, *without: str, **changes: object) -> str:
    return _build_address(filters.to_query(*without, **{name: str(value) for name, value in changes.items()}))


def _name_card(group: IssueGroup) -> tuple[int, int, str, str]:
    key = group.key
    return (key.flow, key.step, key.audit, "" if key.audit else key.code)


def _sort_cards(groups: Iterable[IssueGroup], order: str) -> list[Card]:
    def rank(card: Card) -> tuple[Any, ...]:
        severity = -min(_RANKS[group.key.severity] for group in card)
        newest = max((group.last_day, group.last_run or 0) for group in card)
        issues = sum(group.issues for group in card)
        by_order = {"severity": (severity, newest), "newest": (newest, severity), "most": (issues, severity)}
        return (*by_order[order], issues)

    cards = [list(card) for _, card in groupby(sorted(groups, key=_name_card), key=_name_card)]
    in_order = [sorted(card, key=lambda group: rank([group]), reverse=True) for card in cards]
    return sorted(in_order, key=rank, reverse=True)


def split_template(text: str) -> list[tuple[str, bool]]:
    """A template of messages in words and paths, which are True, the braces around them left out."""
    pieces, end = [], 0
    for part in _BRACES.finditer(text):
        pieces += [(text[end : part.start()] + (part[1] or "")[:1], False), (part[2] or "", True)]
        end = part.end()
    pieces.append((text[end:], False))
    return [(show_invisible(piece), is_path) for piece, is_path in pieces if piece]


class _Builder:
    """Builds the cards of a page, from what four more queries give for all of them."""

    def __init__(self, filters: IssueFilters, flows: Mapping[int, Flow], groups: Card) -> None:
        self._filters, self._flows, self._now = filters, flows, timezone.now()
        # What was searched says nothing of versions and times without, nor does one version say anything of others.
        self._is_search = "q" in filters.values
        self._has_all_versions = not {"q", "version"} & filters.values.keys()
        self._ran = fetch_ran_versions({group.key.flow for group in groups}, filters.first_day)
        versions = {version.id for group in groups if (version := self._find_latest(group))}
        specs = FlowVersion.objects.filter(pk__in=versions).order_by().values_list("pk", "spec")
        self._steps = {pk: dict(enumerate(spec["steps"], start=1)) for pk, spec in specs}
        self._values = fetch_values([issue for group in groups for issue in group.sample[:MAX_VALUES]])
        runs = {run for group in groups for run in (group.last_run, group.first_run) if run}
        self._ends = dict(Run.objects.filter(pk__in=runs).order_by().values_list("pk", "ended_at"))

    def _find_latest(self, group: IssueGroup) -> RanVersion | None:
        """The newest version that a group occurs in."""
        found = [version for version in self._ran[group.key.flow] if version.id in group.versions]
        return found[-1] if found else None

    def build_card(self, shown: Card, whole: Card) -> dict[str, Any]:
        """One audit with those of its groups that are shown."""
        key, latest = shown[0].key, self._find_latest(shown[0])
        step = self._steps[latest.id].get(key.step, {}) if latest else {}
        audit: Mapping[str, Any] = next((one for one in step.get("audits") or () if one["name"] == key.audit), {})
        severity, fail_at = Severity(audit.get("severity", Severity.CRITICAL)), audit.get("fail_at")
        role = "Warns" if fail_at == "never" or (fail_at and severity < fail_at) else "Blocks"
        codes = {group.key.code for group in whole}
        own = {"audit": key.audit, "code": "" if key.audit else key.code, "step": key.step or ""}
        return {
            "badge": SEVERITIES[min((group.key.severity for group in whole), key=_RANKS.__getitem__)],
            "title": name_issue(key),
            "code": key.code if len(codes) == 1 else "",
            # A pass rule of the step has the say instead of its audits.
            "role": role if audit and not step.get("pass_expression") else "",
            "step": key.step,
            "step_name": step.get("name", ""),
            "flow": self._flows[key.flow],
            "issues": sum(group.issues for group in whole),
            "rows": [self._build_row(group, audit, has_code=len(codes) > 1) for group in shown],
            "more": len(whole) - len(shown),
            "url": _build_url(self._filters, flow=self._flows[key.flow].name, **own),
        }

    def _build_row(self, group: IssueGroup, audit: Mapping[str, Any], *, has_code: bool) -> dict[str, Any]:
        key = group.key
        texts = (format_value(self._values[issue.pk]) for issue in group.sample[:MAX_VALUES])
        values = Counter(text for text in texts if text)
        own = {"audit": key.audit, "code": key.code, "step": key.step or "", "own": "" if key.audit else "1"}
        # What the audit's template did not write has a code of ToolFlow's.
        has_template = key.code not in (AUDIT_ERROR, MORE_ISSUES) and audit.get("message") is None
        today = group.by_day.get(self._now.date(), 0)
        return {
            "badge": SEVERITIES[key.severity],
            "code": key.code if has_code else "",
            "pieces": split_template(audit.get("message_template") or "") if has_template else (),
            "example": cut_text(group.sample[0].message if group.sample else "", SHORT_TEXT),
            "mark": self._find_mark(group),
            "values": values.most_common(SHOWN_VALUES),
            "more_values": max(len(values) - SHOWN_VALUES, 0),
            "trends": self._plot(group),
            "trend_title": f"{format_plural(group.issues, 'issue')}, {today} of them today",
            "issues": group.issues,
            "runs": group.runs,
            "last": self._see(group.last_run, group.last_day),
            "first": None if self._is_search else self._see(group.first_run, group.first_day),
            "versions": self._mark_versions(group),
            "url": _build_url(
                self._filters, "severity", "order", flow=self._flows[key.flow].name, **own, of=key.severity
            ),
        }

    def _see(self, run: int | None, day: date | None) -> dict[str, Any]:
        """When a group was seen, and in which run, if that is still there."""
        ended_at = self._ends.get(run or 0)
        return {"run": run if ended_at else None, "at": ended_at, "day": day}

    def _find_mark(self, group: IssueGroup) -> str:
        """Whether the newest versions brought an issue, or took it away."""
        ran, latest = self._ran[group.key.flow], self._find_latest(group)
        if latest is None or len(ran) < 2 or not self._has_all_versions:
            return ""
        if later := [version for version in ran if version.number > latest.number]:
            is_gone = (
                group.last_day <= later[0].first_day and sum(version.runs for version in later) >= MIN_RUNS_WITHOUT
            )
            return f"Gone since v{later[0].number}" if is_gone else ""
        is_new = len(group.versions) == 1 and group.first_day is not None and group.first_day >= latest.first_day
        return f"New in v{latest.number}" if is_new else ""

    def _mark_versions(self, group: IssueGroup) -> list[tuple[int, str]]:
        """The newest versions that ran, each with ``now``, ``has`` or ``without``."""
        ran = self._ran[group.key.flow]
        kinds = [
            (version.number, "without" if version.id not in group.versions else "now" if version is ran[-1] else "has")
            for version in ran[-SHOWN_VERSIONS:]
        ]
        return [one for one in kinds if one[1] != "without" or self._has_all_versions]

    def _plot(self, group: IssueGroup) -> tuple[dict[str, str], dict[str, str]]:
        """Issues by day: before the newest version ran, and since. One is laid over the other."""
        first, slot, ran = self._filters.first_day, SLOT_DAYS.get(self._filters.days, 1), self._ran[group.key.flow]
        counts = [0.0] * (self._filters.days // slot)
        for day, issues in group.by_day.items():
            counts[(day - first).days // slot] += issues
        new = (ran[-1].first_day - first).days // slot if ran else 0
        before, since = [*counts[:new], *[None] * len(counts[new:])], [*[None] * new, *counts[new:]]
        return plot_sparkline(before, most=max(counts), kind="tokens"), plot_sparkline(since, most=max(counts))


def format_value(value: Any) -> str:
    """An offending value in one line, cut; empty where there is none."""
    if value is NO_VALUE:
        return ""
    text = " ".join(value[: 4 * MAX_VALUE_LENGTH].split()) or "“”" if isinstance(value, str) else dump_json(value)
    return show_invisible(text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…")


def _suggest(filters: IssueFilters) -> list[tuple[str, str]]:
    """What may have been meant, of audits, codes and words that are there without these filters, with addresses."""
    asked = [name for name in ("audit", "code", "q") if name in filters.values]
    if not asked:
        return []
    scope = IssueFilters(filters.to_query(*asked))
    groups = sorted(fetch_groups(scope), key=lambda group: (group.last_day, group.last_run or 0), reverse=True)
    found: dict[str, str] = {}
    for name in asked:
        value = filters.values[name]
        if name == "q":
            load_details(groups[:MAX_CARDS], scope)
            texts = [_replace_words(value, groups)]
        else:
            known = {text.casefold(): text for group in groups if (text := getattr(group.key, name))}
            texts = [known[one] for one in get_close_matches(value.casefold(), known, MAX_SUGGESTIONS, 0.5)]
        for text in filter(None, texts):
            others = (other for other in asked if other != name)
            found[show_invisible(text)] = _build_url(filters, *others, **{name: text})
    return list(found.items())[:MAX_SUGGESTIONS]


def _replace_words(search: str, groups: Collection[IssueGroup]) -> str:
    """A search with unknown words replaced by the closest ones in messages, audits and codes; empty if none is."""
    texts = [f"{group.key.audit} {group.key.code}" for group in groups]
    texts += [issue.message for group in groups for issue in group.sample]
    known = {word for text in texts for word in split_words(text) if len(word) > 2}
    asked = split_words(search)
    words = [word if word in known else (get_close_matches(word, known, 1, 0.7) or [word])[0] for word in asked]
    return " ".join(words) if words != list(asked) else ""


# The issues of one group


def load_issue_rows(query: Mapping[str, str]) -> dict[str, Any]:
    """Issues that the filters of an address hold for. Raises ``Http404`` for filters that are not valid."""
    filters, before = IssueFilters(query), query.get("before", "")
    cursor = Cursor.parse(before)
    exact = {"severity": query["of"], **({"audit": ""} if "own" in query else {})}
    if filters.problems or query["of"] not in list(Severity) or (before and cursor is None):
        raise Http404
    found = fetch_issues(filters, before=cursor, page_size=PAGE_SIZE, **exact)
    values, became = fetch_values(found.issues), trace_issues(found.issues)
    own = {name: query[name] for name in ("of", "own") if name in query}
    return {
        "rows": [_build_issue_row(issue, values[issue.pk], became.get(issue.pk)) for issue in found.issues],
        "further_url": _build_url(filters, **own, before=found.next) if found.next else "",
        "searched_to": found.next.run if found.next and found.is_cut else 0,
        "back_url": _build_url(filters),
        "title": show_invisible(filters.values.get("audit") or filters.values.get("code") or "All issues"),
    }


def _build_issue_row(issue: FoundIssue, value: Any, became: tuple[str, str] | None) -> dict[str, Any]:
    return {
        "issue": issue,
        "url": reverse("runs:page", args=[issue.run]) + address_issue(issue.step, issue.number, issue.position),
        "value": format_value(value),
        "message": cut_text(issue.message, SHORT_TEXT),
        "outcome": STATES.get(issue.outcome),
        "became": replace(LIFECYCLE[became[0]], word=became[1]) if became else None,
    }
