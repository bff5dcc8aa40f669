"""Issues across runs, in groups of one flow, step, audit or code of ToolFlow's own, and severity.

Counts are sums of daily rows, never of issues; examples come from the newest runs that those rows name. With words to
search for, the issues of a bounded number of runs that hold them are counted instead.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from django import forms
from django.db.models import Case, F, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum, TextField, When
from django.db.models.functions import Cast, Substr
from django.utils import timezone

from flows.engine.json_values import resolve_pointer
from flows.models import Flow
from runs.filter_fields import NumberField, parse_run_number
from runs.filters import RunFilter, RunFilters, has_row, one_of
from runs.history.issues import Judged, StepIssues
from runs.matching_runs import build_matches, narrow_to_search
from runs.models import Attempt, DailyIssues, DailyRuns, Issue, Run
from runs.paging import Found, fetch_position, scan
from runs.search import SearchQuery, parse_search

PERIODS: Mapping[str, int] = {"7d": 7, "14d": 14, "30d": 30, "90d": 90}
"""Lengths in days, by their names in addresses."""
DEFAULT_PERIOD = "14d"
ORDERS: Mapping[str, str] = {"severity": "Most severe first", "newest": "Newest", "most": "Most"}
SAMPLED_RUNS = 5
"""Runs of a group whose issues are read for examples and values."""
MAX_SAMPLED_ISSUES, MAX_SAMPLED_POSITION = 2_000, 100
"""Issues that are read for examples: of all groups, and of one attempt."""
MAX_TRACED_ISSUES = 1_000
"""Issues of the steps on a page that are compared to say what became of each."""
MAX_OUTPUT_SIZE = 50_000
"""Characters of an output in which values are looked up."""
SEARCHED_RUNS, MAX_SEARCHED_ISSUES = 200, 5_000
"""Runs that hold the words of a search, and their issues, that are read for one page."""
MAX_TEXT = 400
"""Characters that are read of a message, a path and a context."""
STREAM_SLACK = timedelta(days=30)
"""How long before its end a run that is listed was created at most."""


class IssueFilters(RunFilters):
    """The filters and the order of issues in a query string. All filters hold for one and the same issue."""

    # What is true of runs alone.
    status = reason = model = label = since = until = cost = tokens = accepted = by = None  # type: ignore[assignment]
    step = RunFilter(
        NumberField,
        "step",
        label="Step",
        min_value=1,
        max_value=10**6,
        error_messages={"invalid": "A step is a whole number such as 2."},
    )
    period = RunFilter(
        forms.ChoiceField,
        "day",
        label="Period",
        **one_of("a period", [(name, f"Last {days} days") for name, days in PERIODS.items()]),
    )
    order = RunFilter(forms.ChoiceField, "", label="Order", **one_of("an order", list(ORDERS.items())))

    @property
    def days(self) -> int:
        """The length of the period in days, with today."""
        return PERIODS[self.values.get("period", DEFAULT_PERIOD)]

    @property
    def first_day(self) -> date:
        """The first day of the period, in UTC as all days of statistics."""
        return timezone.now().astimezone(UTC).date() - timedelta(days=self.days - 1)

    def build_issue_q(self) -> Q:
        """What is true of the audit, the code and the severity."""
        condition = Q()
        for name in self.values.keys() & {"audit", "code", "severity"}:
            condition &= self.filters[name].build_issue_condition(self.values[name])
        return condition


class GroupKey(NamedTuple):
    """What the issues of a group have in common. Step 0 is one of several; ToolFlow's own issues have no audit."""

    flow: int
    step: int
    audit: str
    code: str
    severity: str


FoundIssue = Any
"""A row of one issue: its own columns, those of ``_COLUMNS``, and ``pk``."""

_COLUMNS = {
    "step_id": F("attempt__step"),
    "step": F("attempt__step__index"),
    "number": F("attempt__number"),
    "outcome": F("attempt__outcome"),
    "is_accepted": F("attempt__is_accepted"),
    "run": F("attempt__step__run"),
    "run_status": F("attempt__step__run__status"),
    "ended_at": F("attempt__step__run__ended_at"),
    "flow": F("attempt__step__run__flow"),
    "version": F("attempt__step__run__version"),
    "message": Substr("description", 1, MAX_TEXT),
    "pointer": Case(When(path__isnull=False, then=Substr("path", 1, MAX_TEXT))),
    # Read where there is no pointer: it holds the value then.
    "item": Case(
        When(path__isnull=True, then=Substr(Cast("context", TextField()), 1, MAX_TEXT)), output_field=TextField()
    ),
}
"""What is read of the attempt and the run of an issue, and the beginning of its texts."""


def _read(issues: QuerySet[Issue]) -> list[FoundIssue]:
    own = ("pk", "attempt_id", "position", "severity", "code", "audit")
    return list(issues.annotate(**_COLUMNS).values_list(*own, *_COLUMNS, named=True))


def _find_key(issue: FoundIssue) -> GroupKey:
    return GroupKey(issue.flow, issue.step, issue.audit, issue.code, issue.severity)


@dataclass(slots=True)
class IssueGroup:
    """One group. Counts are of the period; ``first_day`` and ``first_run`` are the first there ever was."""

    key: GroupKey
    issues: int
    runs: int
    last_day: date
    last_run: int | None
    row_id: int = 0
    """One of its daily rows."""
    first_day: date | None = None
    first_run: int | None = None
    by_day: dict[date, int] = field(default_factory=Counter)
    versions: set[int] = field(default_factory=set)
    """The versions in which it was raised, by their keys."""
    sample: list[FoundIssue] = field(default_factory=list)
    """Some of its newest issues, the newest first."""


def fetch_groups(filters: IssueFilters) -> list[IssueGroup]:
    """The groups of a period that match, in no order: one query, of daily rows."""
    sums = (Sum("issues"), Sum("step_runs"), Max("day"), Max("last_run"), Max("pk"))
    rows = _filter_daily(filters).values_list(*GroupKey._fields).annotate(*sums)
    return [IssueGroup(GroupKey(*row[:5]), *row[5:]) for row in rows]


def load_details(groups: Collection[IssueGroup], filters: IssueFilters) -> None:
    """Add days, versions, the first run and examples to ``groups``: three queries, however many there are."""
    if not groups:
        return
    by_key = {group.key: group for group in groups}
    among = {f"{name}__in": {getattr(key, name) for key in by_key} for name in ("flow", "audit", "code")}
    rows = _filter_daily(filters).filter(**among).values_list(*GroupKey._fields, "version", "day")
    runs: dict[GroupKey, set[int]] = {key: set() for key in by_key}
    for *parts, version, day, issues, first, last in rows.annotate(Sum("issues"), Min("first_run"), Max("last_run")):
        if group := by_key.get(key := GroupKey(*parts)):
            group.by_day[day] += issues
            group.versions.add(version)
            runs[key] |= {first, last} - {None}
    _load_first_runs(by_key, filters)
    del among["flow__in"]
    sampled = {run for own in runs.values() for run in sorted(own, reverse=True)[:SAMPLED_RUNS]}
    newest = Issue.objects.filter(attempt__step__run__in=sampled, position__lt=MAX_SAMPLED_POSITION, **among)
    for issue in _read(newest.order_by("-attempt_id", "position")[:MAX_SAMPLED_ISSUES]):
        key = _find_key(issue)
        if group := by_key.get(key) or by_key.get(key._replace(step=0)):
            group.sample.append(issue)


def _load_first_runs(by_key: Mapping[GroupKey, IssueGroup], filters: IssueFilters) -> None:
    same = DailyIssues.objects.filter(**{name: OuterRef(name) for name in GroupKey._fields})
    if "version" in filters.values:
        same = same.filter(version=filters.values["version"])
    same = same.order_by("day", "first_run")
    rows = DailyIssues.objects.filter(pk__in=[group.row_id for group in by_key.values()]).order_by()
    firsts = rows.values_list(*GroupKey._fields, *(Subquery(same.values(name)[:1]) for name in ("day", "first_run")))
    for *parts, day, run in firsts:
        group = by_key[GroupKey(*parts)]
        group.first_day, group.first_run = day, run


def _filter_daily(filters: IssueFilters) -> QuerySet[DailyIssues]:
    values = filters.values
    # The index begins with the flow.
    flows = [values["flow"]] if "flow" in values else Flow.objects.all()
    rows = DailyIssues.objects.filter(filters.build_issue_q(), flow__in=flows, day__gte=filters.first_day)
    return rows.filter(**{name: values[name] for name in values.keys() & {"version", "step"}}).order_by()


def search_groups(issues: Iterable[FoundIssue]) -> list[IssueGroup]:
    """The groups of ``issues``, with details."""
    groups = []
    newest_first = sorted(issues, key=attrgetter("run", "pk"), reverse=True)
    for key, found in groupby(sorted(newest_first, key=_find_key), _find_key):
        sample = list(found)
        days = Counter((one.ended_at or timezone.now()).astimezone(UTC).date() for one in sample)
        runs = {one.run for one in sample}
        group = IssueGroup(key, len(sample), len(runs), max(days), max(runs), by_day=days, sample=sample)
        group.versions = {one.version for one in sample}
        groups.append(group)
    return groups


class Cursor(NamedTuple):
    """Where a page of issues begins: behind this issue of a run, or behind the run if ``issue`` is 0."""

    run: int
    issue: int = 0

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """A cursor as an address has it; None if it is none."""
        match = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text)
        return cls(int(match[1]), int(match[2])) if match else None

    def __str__(self) -> str:
        return f"{self.run}-{self.issue}"


class IssuePage(NamedTuple):
    """Issues, the newest run first."""

    issues: Sequence[FoundIssue]
    runs: int
    """The runs whose issues were read."""
    next: Cursor | None
    """Where the next page begins."""
    is_cut: bool = False
    """Whether the window of runs ended before the page was full."""


def fetch_issues(filters: IssueFilters, *, before: Cursor | None, page_size: int = 0, **exact: str) -> IssuePage:
    """Up to ``page_size`` issues that match, and whose columns are ``exact``; 0 is all of ``SEARCHED_RUNS`` runs.

    Of the issues that match, those are left out that lack words of the search: the index of words knows whole runs.
    """
    about, limit = filters.build_issue_q() & Q(**exact), page_size + 1 if page_size else SEARCHED_RUNS
    if "step" in filters.values:
        about &= Q(attempt__step__index=filters.values["step"])
    query = _parse_words(filters.values.get("q", ""))
    found = _scan_runs(filters, about, query, before=before, limit=limit)
    issues = Issue.objects.filter(about, attempt__step__run__in=found.ids)
    if before is not None and before.issue:
        issues = issues.exclude(attempt__step__run=before.run, pk__gte=before.issue)
    issues = issues.order_by("-attempt__step__run__created_at", "-attempt__step__run_id", "-pk")
    read = _read(issues[: page_size + 1 if page_size and query is None else MAX_SEARCHED_ISSUES])
    kept = [one for one in read if query is None or query.matches(f"{one.message} · {one.audit} · {one.code}")]
    if 0 < page_size < len(kept):
        last = kept[page_size - 1]
        return IssuePage(kept[:page_size], len(found.ids), Cursor(last.run, last.pk))
    onward = found.searched_key or (found.ids[-1] if len(found.ids) == limit else None)
    if len(read) == MAX_SEARCHED_ISSUES:
        # The last run may not be whole; it begins the next page, unless it is the only one.
        onward = read[-1].run + (read[0].run != read[-1].run)
    return IssuePage(kept, len(found.ids), None if onward is None else Cursor(onward), onward is not None)


def _scan_runs(
    filters: IssueFilters, about: Q, query: SearchQuery | None, *, before: Cursor | None, limit: int
) -> Found:
    """Runs of the period that have an issue ``about`` and hold the words of ``query`` anywhere."""
    first = datetime.combine(filters.first_day, time.min, UTC)
    condition = Q(ended_at__gte=first) & has_row(Issue.objects.filter(about, attempt__step__run=OuterRef("pk")))
    for name in filters.values.keys() & {"flow", "version"}:
        condition &= filters.filters[name].build_condition(filters.values[name])
    streams, select = filters.build_streams(), None
    if query is not None:
        # A word to leave out may be elsewhere in the run.
        streams, _, select = narrow_to_search(replace(query, unwanted=()), streams, "")
    streams = [replace(one, rows=one.rows.filter(created_at__gte=first - STREAM_SLACK)) for one in streams]
    matches = build_matches(condition, streams[0])
    start = before and fetch_position(Run, before.run, time="created_at")
    if before and start:
        # Right before the run of an issue, or right behind a run.
        start = start._replace(key=before.run + bool(before.issue))
    return scan(streams, limit=limit, before=start, matches=matches, select=select, table=Run)


def _parse_words(text: str) -> SearchQuery | None:
    """The words that are searched for; None if there are none."""
    if not text:
        return None
    return parse_search(f'"{text}"' if parse_run_number(text) is not None else text)


NO_VALUE = object()
"""There is none, or it is not known."""


def fetch_values(issues: Collection[FoundIssue]) -> dict[int, Any]:
    """The offending values of issues by their keys: what their paths lead to. One query of their outputs."""
    attempts = {issue.attempt_id for issue in issues if issue.pointer and len(issue.pointer) < MAX_TEXT}
    texts = Attempt.objects.filter(pk__in=attempts, output__isnull=False).order_by()
    beginning = Substr(Cast("output", TextField()), 1, MAX_OUTPUT_SIZE)
    outputs = {pk: json.loads(text) for pk, text in texts.values_list("pk", beginning) if len(text) < MAX_OUTPUT_SIZE}
    return {issue.pk: _find_value(issue, outputs) for issue in issues}


def _find_value(issue: FoundIssue, outputs: Mapping[int, Any]) -> Any:
    try:
        if issue.pointer is None:
            return json.loads(issue.item or "{}").get("item", NO_VALUE)
        if not issue.pointer or issue.attempt_id not in outputs:
            return NO_VALUE
        return resolve_pointer(outputs[issue.attempt_id], issue.pointer)
    except (LookupError, ValueError, AttributeError):
        # Cut, or it leads nowhere.
        return NO_VALUE


def trace_issues(issues: Collection[FoundIssue]) -> dict[int, tuple[str, str]]:
    """What became of issues after their attempts, by their keys. Two queries.

    Each is ``fixed``, ``remains``, ``kept`` or ``unknown``, and the same in the words of the run page. Empty where
    their steps have more issues than are compared. Steps are left out whose texts retention has removed, and those
    where outputs would have to show whether an item of a list has moved.
    """
    steps = {issue.step_id for issue in issues}
    listed: dict[int, list[Issue]] = {}
    rows = Issue.objects.annotate(message=Substr("description", 1, MAX_TEXT)).filter(attempt__step__in=steps)
    rows = rows.only("attempt_id", "position", "code", "audit", "severity", "path").order_by("position")
    for row in rows[: MAX_TRACED_ISSUES + 1]:
        row.description = row.message  # type: ignore[attr-defined]  # annotated
        listed.setdefault(row.attempt_id, []).append(row)
    if sum(map(len, listed.values())) > MAX_TRACED_ISSUES:
        return {}
    attempts = Attempt.objects.filter(step__in=steps, step__run__outputs_removed_at__isnull=True)
    judged: dict[int, list[Judged]] = {}
    for attempt in attempts.only("step_id", "number", "outcome").order_by("number"):
        judged.setdefault(attempt.step_id, []).append((attempt, listed.get(attempt.pk, ())))
    traced = {step: found for step, own in judged.items() if not (found := StepIssues(step, own)).moving}
    return {issue.pk: _find_fate(issue, traced[issue.step_id]) for issue in issues if issue.step_id in traced}


def _find_fate(issue: FoundIssue, traced: StepIssues) -> tuple[str, str]:
    if issue.is_accepted:
        return "remains", "Kept in the output"
    marks = traced.list_marks(issue.pk)
    if len(marks) > 1:
        last = marks[-1]
        return last.kind, str(last)
    if issue.outcome == "passed":
        return "remains", "Kept in the output"
    if issue.run_status == "failed" and issue.number == traced.latest:
        return "kept", "Kept until the run failed"
    return "unknown", "Not checked again"


class RanVersion(NamedTuple):
    """A version that ran in the period."""

    id: int
    number: int
    first_day: date
    runs: int


def fetch_ran_versions(flows: Collection[int], first: date) -> dict[int, list[RanVersion]]:
    """The versions of flows that ran since a day, by flow, the oldest first."""
    rows = DailyRuns.objects.filter(flow__in=flows, day__gte=first).order_by("version__number")
    found: dict[int, list[RanVersion]] = {flow: [] for flow in flows}
    for flow, *values in rows.values_list("flow", "version", "version__number").annotate(Min("day"), Sum("runs")):
        found[flow].append(RanVersion(*values))
    return found
