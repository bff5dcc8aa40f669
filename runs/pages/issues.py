"""Issues across runs: the page of their groups, and the issues of one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from flows.engine.errors import ExpressionError
from flows.engine.history import Severity
from flows.engine.json_values import dump_json
from flows.engine.judging import AUDIT_ERROR, MORE_ISSUES
from flows.engine.message_template import parse_template
from flows.models import Flow, FlowVersion
from runs.filter_fields import shorten
from runs.formatting import format_age, format_count, format_plural
from runs.history.issue_links import address_issue, join_address
from runs.history.json_lines import show_invisible
from runs.history.texts import SHORT_TEXT, CutText, cut_text
from runs.issue_groups import (
    NO_VALUE,
    PERIODS,
    Cursor,
    FoundIssue,
    IssueFilters,
    IssueGroup,
    RanVersion,
    fetch_groups,
    fetch_issues,
    fetch_ran_versions,
    find_values,
    load_details,
    search_groups,
)
from runs.models import Run
from runs.pages.access import require_permission
from runs.pages.addresses import find_address
from runs.pages.badges import SEVERITIES, STATES, Badge
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
CHART_WIDTH, CHART_HEIGHT = 104, 28
SLOT_DAYS: Mapping[int, int] = {30: 2, 90: 6}
"""Days of one bar, where that is more than one."""
ORDERS: Mapping[str, str] = {"severity": "Most severe first", "newest": "Newest", "most": "Most"}
_RANKS = {name: rank for rank, name in enumerate(SEVERITIES)}


class Piece(NamedTuple):
    """A part of a message: words, or a path whose value stands there."""

    text: str
    is_path: bool = False


class SeenRun(NamedTuple):
    """When an issue was seen and in which run; without an address where the run is gone or not known."""

    text: str
    title: str
    number: int
    url: str


class Choice(NamedTuple):
    """A link to the page as it is with another order or search, or without a filter."""

    word: str
    url: str
    is_current: bool = False
    name: str = ""
    """Of the filter."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group: issues of an audit with one code and one severity."""

    badge: Badge
    code: str
    """Where the audit raises several."""
    pieces: tuple[Piece, ...]
    """The template of its messages; empty where there is none."""
    example: CutText
    mark: str
    values: Sequence[tuple[str, int]]
    """Offending values, each with how often it is among the newest issues."""
    more_values: int
    bars: tuple[str, str]
    """SVG paths: of the days before the newest version ran, and since."""
    chart_title: str
    issues: str
    runs: str
    last: SeenRun
    first: SeenRun | None
    versions: Sequence[tuple[str, str, str]]
    """Label, kind ("now", "has", "without") and title of each."""
    url: str
    """Of its issues."""


@dataclass(frozen=True, slots=True)
class AuditCard:
    """One audit of a step, or one code of ToolFlow's own, with its groups."""

    badge: Badge
    title: str
    code: str
    role: str
    place: str
    flow: Choice
    issues: str
    rows: tuple[GroupRow, ...]
    more: str
    url: str


@dataclass(frozen=True, slots=True)
class IssuesPage:
    """The page of groups."""

    cards: tuple[AuditCard, ...]
    summary: str
    note: str
    """How far was searched."""
    further: Choice | None
    newest_url: str
    values: Mapping[str, str]
    """What stands in the fields of the form."""
    order: str
    flows: Sequence[tuple[str, str]]
    severities: Sequence[tuple[str, str]]
    periods: Sequence[tuple[str, str]]
    orders: tuple[Choice, ...]
    chips: tuple[Choice, ...]
    problems: tuple[str, ...]
    suggestions: tuple[Choice, ...]
    folded_count: int
    days: int
    longer_url: str
    """The same over the longest period; empty if that is shown."""


class IssueRow(NamedTuple):
    """One issue of a group."""

    run: int
    url: str
    """Of its output, at the offending value."""
    place: str
    path: str
    value: str
    message: CutText
    outcome: Badge | None
    when: str
    moment: datetime | None


class IssueRows(NamedTuple):
    """A page of the issues of a group."""

    rows: tuple[IssueRow, ...]
    further_url: str
    searched_to: int
    """The run that a window of runs ended at, where further ones may match; else 0."""
    back_url: str
    title: str


def build_issues_url(
    flow: str = "",
    *,
    version: str = "",
    audit: str = "",
    code: str = "",
    step: int | None = None,
    severity: str = "",
    period: str = "",
) -> str:
    """The address of the issues of a flow, by its name, narrowed to a version, an audit, a code, a step, …"""
    asked = {"flow": flow, "version": version, "audit": audit, "code": code}
    asked |= {"step": str(step or ""), "severity": severity, "period": period}
    query = urlencode({name: value for name, value in asked.items() if value})
    return find_address("runs:issues") + (f"?{query}" if query else "")


@require_safe
@require_permission("runs.view_run")
def show_issues(request: HttpRequest) -> HttpResponse:
    """Groups of issues; with ``of``, the issues of one: a page of its own, or the part that a group opens to."""
    now = timezone.now()
    if "of" not in request.GET:
        return render(request, "runs/issues.html", {"page": load_issues_page(request.GET, now)})
    is_part = request.headers.get("HX-Request") == "true"
    template = f"runs/{'issue_rows' if is_part else 'issue_rows_page'}.html"
    return render(request, template, {"page": load_issue_rows(request.GET, now)})


urls = [path("issues/", show_issues, name="issues")]


# ---------------------------------------------------------------------------------------------------------------
# Groups


def load_issues_page(query: Mapping[str, str], now: datetime) -> IssuesPage:
    """The page that a query string asks for; what is not valid in it gives a sentence and is left out."""
    filters, today = IssueFilters(query), now.astimezone(UTC).date()
    order = query.get("order", "severity")
    problems = [f"{problem.message} The filter is left out." for problem in filters.problems]
    if order not in ORDERS:
        problems.append(f"“{shorten(order)}” is not an order; it can be {', '.join(ORDERS)}.")
        order = "severity"
    number, before = _parse_number(query, "page") or 1, _parse_number(query, "before")
    searched = None
    if "q" in filters.values:
        searched = fetch_issues(filters, today, before=Cursor(before) if before else None)
    groups = fetch_groups(filters, today) if searched is None else search_groups(searched.issues)
    cards = _sort_cards(groups, order)
    shown = cards[(number - 1) * MAX_CARDS : number * MAX_CARDS]
    most = MAX_ROWS if len(cards) > 1 else MAX_CARDS * MAX_ROWS
    rows = [group for card in shown for group in card[:most]]
    if searched is None:
        load_details(rows, filters, today)
    flows = {pk: names for pk, *names in Flow.objects.order_by("title", "pk").values_list("pk", "name", "title")}
    titles: dict[str, str] = dict(flows.values())
    builder = _Builder(filters, order, now, flows, rows)
    further, note, left = None, "", len(cards) - number * MAX_CARDS
    if left > 0:
        further = Choice(format_plural(left, "more audit"), _build_url(filters, order, page=number + 1, before=before))
    elif searched and searched.next:
        further = Choice("Keep searching", _build_url(filters, order, before=searched.next.run))
    if searched:
        note = f"Searched {format_plural(searched.runs, 'run')} that contain these words."
        if searched.next:
            note = f"Searched back to run #{searched.next.run}. Counts are of {format_plural(searched.runs, 'run')}."
    return IssuesPage(
        cards=tuple(builder.build_card(card[:most], card) for card in shown),
        summary=f"{format_plural(sum(group.issues for group in groups), 'issue')} in "
        f"{format_plural(len(groups), 'group')}",
        note=note,
        further=further,
        newest_url=_build_url(filters, order) if number > 1 or before else "",
        values={name: str(text) for name, text in filters.texts.items()},
        order=order,
        flows=tuple(titles.items()),
        severities=[(name, badge.word) for name, badge in SEVERITIES.items()],
        periods=[(name, f"Last {days} days") for name, days in PERIODS.items()],
        orders=tuple(Choice(word, _build_url(filters, name), name == order) for name, word in ORDERS.items()),
        chips=_list_chips(filters, order, titles),
        problems=(*problems, *filters.find_unknown_names(("order", "page", "before"))),
        suggestions=() if groups else _suggest(filters, order, today),
        folded_count=len(filters.values.keys() & {"version", "step", "audit", "code"}),
        days=filters.days,
        longer_url="" if filters.days == max(PERIODS.values()) else _build_url(filters, order, period="90d"),
    )


def _build_url(filters: IssueFilters, order: str, *without: str, **changes: Any) -> str:
    parts = {"order": "" if order == "severity" else order, **changes}
    query = filters.to_query(*without, **{name: str(value) for name, value in parts.items() if value})
    return find_address("runs:issues") + (f"?{query}" if query else "")


def _parse_number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _name_card(group: IssueGroup) -> tuple[int, int, str, str]:
    key = group.key
    return (key.flow, key.step, key.audit, "" if key.audit else key.code)


def _sort_cards(groups: Iterable[IssueGroup], order: str) -> list[list[IssueGroup]]:
    """Groups by audit, in their order: all cards and the groups of each."""

    def rank(groups: Sequence[IssueGroup]) -> tuple[Any, ...]:
        severity = -min(_RANKS[group.key.severity] for group in groups)
        newest = max((group.last_day, group.last_run) for group in groups)
        issues = sum(group.issues for group in groups)
        by_order = {"severity": (severity, newest), "newest": (newest, severity), "most": (issues, severity)}
        return (*by_order[order], issues)

    cards = [list(card) for _, card in groupby(sorted(groups, key=_name_card), key=_name_card)]
    return sorted(
        (sorted(card, key=lambda group: rank([group]), reverse=True) for card in cards), key=rank, reverse=True
    )


def _list_chips(filters: IssueFilters, order: str, titles: Mapping[str, str]) -> tuple[Choice, ...]:
    """The filters that are set, each with the page without it."""
    texts = {name: str(text) for name, text in filters.texts.items()}
    words = {"q": f"“{texts.get('q')}”", "version": f"v{texts.get('version')}", "period": f"Last {filters.days} days"}
    if "severity" in texts:
        words["severity"] = SEVERITIES[texts["severity"]].word + " or above" * (texts["severity"] != "critical")
    words["flow"] = titles.get(texts.get("flow", ""), "")
    labels = {name: str(filters.filters[name].label) for name in texts} | {"severity": "Severity"}
    return tuple(
        Choice(show_invisible(words.get(name, text)), _build_url(filters, order, name), name=labels[name])
        for name, text in texts.items()
    )


class _Audit(NamedTuple):
    """What a version says of an audit."""

    pieces: tuple[Piece, ...]
    role: str


class _Step(NamedTuple):
    name: str = ""
    audits: Mapping[str, _Audit] = {}


def _read_steps(spec: Any) -> Mapping[int, _Step]:
    # Only this is read: an older definition may have what is refused now.
    try:
        return {
            index: _Step(
                step["name"],
                {audit["name"]: _read_audit(audit, step.get("pass_expression")) for audit in step.get("audits") or ()},
            )
            for index, step in enumerate(spec["steps"], start=1)
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _read_audit(audit: Mapping[str, Any], pass_rule: str | None) -> _Audit:
    template = audit.get("message_template") if audit.get("message") is None else None
    role = "" if pass_rule else "Warns" if audit.get("fail_at") == "never" else "Blocks"
    return _Audit(split_template(template) if template else (), role)


def split_template(text: str) -> tuple[Piece, ...]:
    """A template of messages in words and paths, the braces around them left out."""
    try:
        paths = parse_template(text).paths
    except ExpressionError:
        return (Piece(show_invisible(text)),)
    pieces, behind = [], 0
    for name, offset in paths:
        pieces += [Piece(text[behind : text.rindex("{", 0, offset)]), Piece(name, is_path=True)]
        behind = text.index("}", offset) + 1
    pieces.append(Piece(text[behind:]))
    shown = [Piece(show_invisible(one.text.replace("{{", "{").replace("}}", "}")), one.is_path) for one in pieces]
    return tuple(one for one in shown if one.text)


class _Builder:
    """Builds the cards of a page, from what four more queries give for all of them."""

    def __init__(
        self,
        filters: IssueFilters,
        order: str,
        now: datetime,
        flows: Mapping[int, Sequence[str]],
        groups: Sequence[IssueGroup],
    ) -> None:
        self._filters, self._order, self._now, self._flows = filters, order, now, flows
        self._today = now.astimezone(UTC).date()
        self._first_day = filters.find_first_day(self._today)
        # What was searched says nothing of versions and times without.
        self._is_search = "q" in filters.values
        self._ran = fetch_ran_versions({group.key.flow for group in groups}, self._first_day)
        self._latest = {group.key: self._find_latest(group) for group in groups}
        versions = {version.id for version in self._latest.values() if version}
        specs = FlowVersion.objects.filter(pk__in=versions).order_by().values_list("pk", "spec")
        self._steps = {pk: _read_steps(spec) for pk, spec in specs}
        self._values = find_values([issue for group in groups for issue in group.sample[:MAX_VALUES]])
        runs = {run for group in groups for run in (group.last_run, group.first_run) if run}
        self._ends = dict(Run.objects.filter(pk__in=runs).order_by().values_list("pk", "ended_at"))

    def _find_latest(self, group: IssueGroup) -> RanVersion | None:
        """The newest version that a group occurs in."""
        found = [version for version in self._ran[group.key.flow] if version.id in group.versions]
        return found[-1] if found else None

    def build_card(self, groups: Sequence[IssueGroup], whole: Sequence[IssueGroup]) -> AuditCard:
        """One audit with some of its ``whole`` groups."""
        key, latest = groups[0].key, self._latest[groups[0].key]
        step = self._steps[latest.id].get(key.step, _Step()) if latest else _Step()
        name, title = self._flows[key.flow]
        codes = {group.key.code for group in whole}
        audit = step.audits.get(key.audit)
        place = f"Step {key.step}" if key.step else "Several steps"
        own = {"flow": name, "audit": key.audit, "code": "" if key.audit else key.code, "step": key.step}
        return AuditCard(
            badge=SEVERITIES[min((group.key.severity for group in whole), key=_RANKS.__getitem__)],
            title=show_invisible(key.audit or key.code.replace("_", " ").capitalize()),
            code=show_invisible(key.code) if len(codes) == 1 else "",
            role=audit.role if audit else "",
            place=f"{place}, {show_invisible(step.name)}" if step.name else place,
            flow=Choice(show_invisible(title), find_address("runs:flow", name)),
            issues=format_plural(sum(group.issues for group in whole), "issue"),
            rows=tuple(self._build_row(group, audit, has_code=len(codes) > 1) for group in groups),
            more=format_plural(len(whole) - len(groups), "more group") if len(whole) > len(groups) else "",
            url=_build_url(self._filters, self._order, **own),
        )

    def _build_row(self, group: IssueGroup, audit: _Audit | None, *, has_code: bool) -> GroupRow:
        key = group.key
        texts = (format_value(self._values[issue.id]) for issue in group.sample[:MAX_VALUES])
        values = Counter(text for text in texts if text)
        own = {"audit": key.audit, "code": key.code, "step": str(key.step or ""), "own": "" if key.audit else "1"}
        query = self._filters.to_query("severity", flow=self._flows[key.flow][0], **own, of=key.severity)
        return GroupRow(
            badge=SEVERITIES[key.severity],
            code=show_invisible(key.code) if has_code else "",
            # What the audit's template did not write has a code of ToolFlow's.
            pieces=audit.pieces if audit and key.code not in (AUDIT_ERROR, MORE_ISSUES) else (),
            example=cut_text(group.sample[0].description if group.sample else "", SHORT_TEXT),
            mark=self._find_mark(group),
            values=values.most_common(SHOWN_VALUES),
            more_values=max(len(values) - SHOWN_VALUES, 0),
            bars=self._plot(group),
            chart_title=f"{format_plural(group.issues, 'issue')}, {group.by_day.get(self._today, 0)} of them today",
            issues=format_count(group.issues),
            runs=format_plural(group.runs, "run"),
            last=self._see(group.last_run, group.last_day),
            first=None if self._is_search else self._see(group.first_run or 0, group.first_day or self._today),
            versions=self._mark_versions(group),
            url=f"{find_address('runs:issues')}?{query}",
        )

    def _see(self, run: int, day: date) -> SeenRun:
        """When a group was seen, as long as its run is there, else on which day."""
        end, url = self._ends.get(run), reverse("runs:page", args=[run]) if run in self._ends else ""
        if end is None:
            return SeenRun(_format_day(day, self._today), f"{day}", run, url)
        return SeenRun(_format_time(end, self._now), f"{timezone.localtime(end):%Y-%m-%d %H:%M:%S %Z}", run, url)

    def _find_mark(self, group: IssueGroup) -> str:
        """Whether the newest versions brought an issue, or took it away."""
        ran, latest = self._ran[group.key.flow], self._latest[group.key]
        if latest is None or len(ran) < 2 or self._is_search:
            return ""
        if later := [version for version in ran if version.number > latest.number]:
            is_gone = sum(version.runs for version in later) >= MIN_RUNS_WITHOUT
            return f"Gone since v{later[0].number}" if is_gone else ""
        is_new = len(group.versions) == 1 and group.first_day is not None and group.first_day >= latest.first_day
        return f"New in v{latest.number}" if is_new else ""

    def _mark_versions(self, group: IssueGroup) -> list[tuple[str, str, str]]:
        ran, marks = self._ran[group.key.flow], []
        for version in ran[-SHOWN_VERSIONS:]:
            has_it, label = version.id in group.versions, f"v{version.number}"
            if has_it:
                marks.append((label, "now" if version is ran[-1] else "has", f"Occurs in version {version.number}"))
            elif not self._is_search:
                marks.append((label, "without", f"Does not occur in version {version.number}"))
        return marks

    def _plot(self, group: IssueGroup) -> tuple[str, str]:
        days = self._filters.days
        first, slot, ran = self._first_day, SLOT_DAYS.get(days, 1), self._ran[group.key.flow]
        counts: Counter[int] = Counter()
        for day, issues in group.by_day.items():
            counts[(day - first).days // slot] += issues
        new_from = (ran[-1].first_day - first).days // slot if ran else 0
        width, most = CHART_WIDTH * slot / days, max(counts.values(), default=1)
        paths = ["", ""]
        for position in range(days // slot):
            # A day without issues has a line to stand on.
            height = max(counts[position] / most * CHART_HEIGHT, 2) if counts[position] else 1
            box = f"h{width * 0.8:.1f}v{height:.1f}h-{width * 0.8:.1f}z"
            paths[position >= new_from] += f"M{position * width:.1f} {CHART_HEIGHT - height:.1f}{box}"
        return paths[0], paths[1]


def _format_day(day: date, today: date) -> str:
    return f"{day.day} {day:%b}" if day.year == today.year else f"{day.day} {day:%b %Y}"


def _format_time(moment: datetime, now: datetime) -> str:
    if now - moment < timedelta(days=7):
        return f"{format_age(now - moment)} ago"
    return _format_day(timezone.localtime(moment).date(), timezone.localtime(now).date())


def format_value(value: Any) -> str:
    """An offending value in one line, cut; empty where there is none."""
    if value is NO_VALUE:
        return ""
    text = " ".join(value[: 4 * MAX_VALUE_LENGTH].split()) or "“”" if isinstance(value, str) else dump_json(value)
    return show_invisible(text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…")


def _suggest(filters: IssueFilters, order: str, today: date) -> tuple[Choice, ...]:
    """What may have been meant, of audits, codes and words that are there without these filters."""
    asked = [name for name in ("audit", "code", "q") if name in filters.values]
    if not asked:
        return ()
    scope = IssueFilters(filters.to_query(*asked))
    groups = sorted(fetch_groups(scope, today), key=lambda group: (group.last_day, group.last_run), reverse=True)
    found: dict[str, Choice] = {}
    for name in asked:
        value = str(filters.values[name])
        if name == "q":
            load_details(groups[:MAX_CARDS], scope, today)
            texts = [_replace_words(value, groups)]
        else:
            known = {text.casefold(): text for group in groups if (text := getattr(group.key, name))}
            texts = [known[one] for one in get_close_matches(value.casefold(), known, MAX_SUGGESTIONS, 0.5)]
        for text in filter(None, texts):
            url = _build_url(filters, order, *(other for other in asked if other != name), **{name: text})
            found[text] = Choice(show_invisible(text), url)
    return tuple(found.values())[:MAX_SUGGESTIONS]


def _replace_words(search: str, groups: Collection[IssueGroup]) -> str:
    """A search with unknown words replaced by the closest ones in messages, audits and codes; empty if none is."""
    texts = [f"{group.key.audit} {group.key.code}" for group in groups]
    texts += [issue.description for group in groups for issue in group.sample]
    known = {word for text in texts for word in split_words(text) if len(word) > 2}
    asked = split_words(search)
    words = [word if word in known else (get_close_matches(word, known, 1, 0.7) or [word])[0] for word in asked]
    return " ".join(words) if words != list(asked) else ""


# ---------------------------------------------------------------------------------------------------------------
# The issues of one group


def load_issue_rows(query: Mapping[str, str], now: datetime) -> IssueRows:
    """Issues that the filters of an address hold for. Raises ``Http404`` for filters that are not valid."""
    filters, before = IssueFilters(query), query.get("before", "")
    cursor = Cursor.parse(before) if before else None
    exact = {"severity": query["of"], **({"audit": ""} if "own" in query else {})}
    if filters.problems or query["of"] not in list(Severity) or (before and cursor is None):
        raise Http404
    page = fetch_issues(filters, now.astimezone(UTC).date(), before=cursor, page_size=PAGE_SIZE, **exact)
    values = find_values(page.issues)
    here, further = find_address("runs:issues"), ""
    if page.next:
        own = {name: query[name] for name in ("of", "own") if name in query}
        further = f"{here}?{filters.to_query(**own, before=str(page.next))}"
    return IssueRows(
        rows=tuple(_build_issue_row(issue, values[issue.id], now) for issue in page.issues),
        further_url=further,
        searched_to=page.next.run if page.next and page.is_cut else 0,
        back_url=f"{here}?{filters.to_query()}",
        title=show_invisible(str(filters.values.get("audit") or filters.values.get("code") or "All issues")),
    )


def _build_issue_row(issue: FoundIssue, value: Any, now: datetime) -> IssueRow:
    return IssueRow(
        run=issue.run,
        url=join_address(
            reverse("runs:page", args=[issue.run]), address_issue(issue.step, issue.attempt, issue.position, page=1)
        ),
        place=f"Step {issue.step}, attempt {issue.attempt}",
        path=show_invisible(issue.path or ""),
        value=format_value(value),
        message=cut_text(issue.description, SHORT_TEXT),
        outcome=STATES.get(issue.outcome),
        when=_format_time(issue.ended_at, now) if issue.ended_at else "",
        moment=issue.ended_at,
    )
