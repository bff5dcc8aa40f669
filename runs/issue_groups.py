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
from functools import partial, reduce
from itertools import groupby
from operator import and_, attrgetter
from typing import Any, NamedTuple

from django import forms
from django.db.models import Case, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum, TextField, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Substr

from flows.engine.json_values import resolve_pointer
from flows.models import Flow
from runs.filter_fields import NumberField, parse_run_number
from runs.filters import IssueFilter, RunFilter, RunFilters, has_row
from runs.models import Attempt, DailyIssues, DailyRuns, Issue, Run
from runs.paging import Found, Position, Stream, check, fetch_position, scan
from runs.search import SearchQuery, fetch_matching_among, fetch_matching_ids, parse_search

PERIODS: Mapping[str, int] = {"7d": 7, "14d": 14, "30d": 30, "90d": 90}
"""Lengths in days, by their names in addresses."""
DEFAULT_PERIOD = "14d"
SAMPLED_RUNS = 5
"""Runs of a group whose issues are read for examples and values."""
MAX_SAMPLED_ISSUES, MAX_SAMPLED_POSITION = 2_000, 100
"""Issues that are read for examples: of all groups, and of one attempt."""
MAX_OUTPUT_SIZE = 50_000
"""Characters of an output in which values are looked up."""
SEARCHED_RUNS, MAX_SEARCHED_ISSUES = 200, 5_000
"""Runs that hold the words of a search, and their issues, that are read for one page."""
MAX_HITS = 5_000
"""Runs that hold the words and are looked up all at once."""
MAX_TEXT = 400
"""Characters that are read of a message, a path and a context."""
STREAM_SLACK = timedelta(days=30)
"""How long before its end a run that is listed was created at most."""


class IssueFilters(RunFilters):
    """The filters of issues in a query string. All of them hold for one and the same issue."""

    # What is true of runs alone.
    status = reason = model = label = since = until = cost = tokens = by = None  # type: ignore[assignment]
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
        choices=[(name, f"Last {days} days") for name, days in PERIODS.items()],
        error_messages={"invalid_choice": f"“%(value).40s” is not a period; it can be {', '.join(PERIODS)}."},
    )

    @property
    def days(self) -> int:
        """The length of the period in days, with today."""
        return PERIODS[self.values.get("period", DEFAULT_PERIOD)]

    def find_first_day(self, today: date) -> date:
        """The first day of the period."""
        return today - timedelta(days=self.days - 1)

    def build_issue_q(self) -> Q:
        """What is true of the audit, the code and the severity."""
        found = ((self.filters[name], value) for name, value in self.values.items())
        conditions = (one.build_issue_condition(value) for one, value in found if isinstance(one, IssueFilter))
        return reduce(and_, conditions, Q())


class GroupKey(NamedTuple):
    """What the issues of a group have in common. Step 0 is one of several; ToolFlow's own issues have no audit."""

    flow: int
    step: int
    audit: str
    code: str
    severity: str


KEY_COLUMNS = GroupKey._fields


class FoundIssue(NamedTuple):
    """One issue, with the beginning of its texts."""

    id: int
    attempt_id: int
    run: int
    step: int
    attempt: int
    position: int
    severity: str
    code: str
    audit: str
    description: str
    path: str | None
    context: str | None
    """Read where there is no path: it holds the value then."""
    flow: int
    version: int
    ended_at: datetime | None
    outcome: str

    @property
    def key(self) -> GroupKey:
        """The group that it is in."""
        return GroupKey(self.flow, self.step, self.audit, self.code, self.severity)


_COLUMNS: tuple[str | Combinable, ...] = (
    *("pk", "attempt_id", "attempt__step__run_id", "attempt__step__index", "attempt__number", "position"),
    *("severity", "code", "audit"),
    Substr("description", 1, MAX_TEXT),
    Case(When(path__isnull=False, then=Substr("path", 1, MAX_TEXT))),
    Case(When(path__isnull=True, then=Substr(Cast("context", TextField()), 1, MAX_TEXT)), output_field=TextField()),
    *(f"attempt__step__run__{name}" for name in ("flow_id", "version_id", "ended_at")),
    "attempt__outcome",
)


@dataclass(slots=True)
class IssueGroup:
    """One group. Counts are of the period; ``first_day`` and ``first_run`` are the first there ever was."""

    key: GroupKey
    issues: int = 0
    runs: int = 0
    last_day: date = date.min
    last_run: int = 0
    """0 where it is not known."""
    row_id: int = 0
    """One of its daily rows."""
    first_day: date | None = None
    first_run: int | None = None
    by_day: dict[date, int] = field(default_factory=dict)
    versions: set[int] = field(default_factory=set)
    """The versions in which it was raised, by their keys."""
    sample: list[FoundIssue] = field(default_factory=list)
    """Some of its newest issues, the newest first."""


class RanVersion(NamedTuple):
    """A version that ran in the period."""

    id: int
    number: int
    first_day: date
    runs: int


def fetch_groups(filters: IssueFilters, today: date) -> list[IssueGroup]:
    """The groups of a period that match, in no order: one query, of daily rows."""
    rows = _filter_daily(filters, today).values_list(*KEY_COLUMNS)
    sums = rows.annotate(Sum("issues"), Sum("step_runs"), Max("day"), Max("last_run"), Max("pk"))
    return [
        IssueGroup(GroupKey._make(key), issues, runs, last_day, last_run or 0, row_id)
        for *key, issues, runs, last_day, last_run, row_id in sums
    ]


def load_details(groups: Collection[IssueGroup], filters: IssueFilters, today: date) -> None:
    """Add days, versions, the first run and examples to ``groups``: three queries, however many there are."""
    by_key = {group.key: group for group in groups}
    if not by_key:
        return
    names = {name: {getattr(key, name) for key in by_key} for name in ("flow", "audit", "code")}
    rows = _filter_daily(filters, today).filter(**{f"{name}__in": values for name, values in names.items()})
    found = rows.values_list(*KEY_COLUMNS, "version", "day").annotate(Sum("issues"), Min("first_run"), Max("last_run"))
    runs: dict[GroupKey, set[int]] = {key: set() for key in by_key}
    for *parts, version, day, issues, first_run, last_run in found:
        if (group := by_key.get(key := GroupKey._make(parts))) is not None:
            group.by_day[day] = group.by_day.get(day, 0) + issues
            group.versions.add(version)
            runs[key] |= {first_run, last_run} - {None}
    _load_first_runs(by_key, filters)
    sampled = {run for found_runs in runs.values() for run in sorted(found_runs, reverse=True)[:SAMPLED_RUNS]}
    issues_found = Issue.objects.filter(
        attempt__step__run__in=sampled,
        audit__in=names["audit"],
        code__in=names["code"],
        position__lt=MAX_SAMPLED_POSITION,
    )
    for issue in _read(issues_found.order_by("-attempt_id", "position")[:MAX_SAMPLED_ISSUES]):
        group = by_key.get(issue.key) or by_key.get(issue.key._replace(step=0))
        if group is not None:
            group.sample.append(issue)


def _load_first_runs(by_key: Mapping[GroupKey, IssueGroup], filters: IssueFilters) -> None:
    same = DailyIssues.objects.filter(**{name: OuterRef(name) for name in KEY_COLUMNS}).order_by("day", "first_run")
    if "version" in filters.values:
        same = same.filter(version=filters.values["version"])
    rows = DailyIssues.objects.filter(pk__in=[group.row_id for group in by_key.values()]).order_by()
    firsts = rows.annotate(
        day_of_first=Subquery(same.values("day")[:1]), of_first=Subquery(same.values("first_run")[:1])
    )
    for *parts, day, run in firsts.values_list(*KEY_COLUMNS, "day_of_first", "of_first"):
        group = by_key[GroupKey._make(parts)]
        group.first_day, group.first_run = day, run


def _filter_daily(filters: IssueFilters, today: date) -> QuerySet[DailyIssues]:
    # The index begins with the flow.
    flow = filters.values.get("flow")
    rows = DailyIssues.objects.filter(
        filters.build_issue_q(),
        flow__in=Flow.objects.all() if flow is None else [flow],
        day__range=(filters.find_first_day(today), today),
    )
    for name in ("version", "step"):
        if name in filters.values:
            rows = rows.filter(**{name: filters.values[name]})
    return rows.order_by()


def search_groups(issues: Iterable[FoundIssue]) -> list[IssueGroup]:
    """The groups of ``issues``, with details."""
    groups: dict[GroupKey, IssueGroup] = {}
    for key, found in groupby(sorted(issues, key=attrgetter("key", "run", "id"), reverse=True), attrgetter("key")):
        sample = list(found)
        days = [(one.ended_at or datetime.now(UTC)).astimezone(UTC).date() for one in sample]
        groups[key] = IssueGroup(
            key,
            issues=len(sample),
            runs=len({one.run for one in sample}),
            last_day=max(days),
            last_run=sample[0].run,
            first_day=min(days),
            first_run=sample[-1].run,
            by_day=Counter(days),
            versions={one.version for one in sample},
            sample=sample,
        )
    return list(groups.values())


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


def fetch_issues(
    filters: IssueFilters, today: date, *, before: Cursor | None, page_size: int = 0, **exact: str
) -> IssuePage:
    """Up to ``page_size`` issues that match, and whose columns are ``exact``; 0 is all of ``SEARCHED_RUNS`` runs.

    Of the issues that match, those are left out that lack words of the search: the index of words knows whole runs.
    """
    about, limit = filters.build_issue_q() & Q(**exact), page_size + 1 if page_size else SEARCHED_RUNS
    if "step" in filters.values:
        about &= Q(attempt__step__index=filters.values["step"])
    query = _parse_words(filters.values.get("q", ""))
    found = _scan_runs(filters, today, about, query, before=before, limit=limit)
    issues = Issue.objects.filter(about, attempt__step__run__in=found.ids)
    if before is not None and before.issue:
        issues = issues.exclude(attempt__step__run=before.run, pk__gte=before.issue)
    issues = issues.order_by("-attempt__step__run__created_at", "-attempt__step__run_id", "-pk")
    read = _read(issues[: page_size + 1 if page_size and query is None else MAX_SEARCHED_ISSUES])
    kept = [one for one in read if query is None or query.matches(f"{one.description} · {one.audit} · {one.code}")]
    if 0 < page_size < len(kept):
        last = kept[page_size - 1]
        return IssuePage(kept[:page_size], len(found.ids), Cursor(last.run, last.id))
    onward = found.searched_key or (found.ids[-1] if len(found.ids) == limit else None)
    if len(read) == MAX_SEARCHED_ISSUES:
        # The last run may not be whole; it begins the next page, unless it is the only one.
        onward = read[-1].run + (read[0].run != read[-1].run)
    return IssuePage(kept, len(found.ids), None if onward is None else Cursor(onward), onward is not None)


def _scan_runs(
    filters: IssueFilters, today: date, about: Q, query: SearchQuery | None, *, before: Cursor | None, limit: int
) -> Found:
    """Runs of the period that have an issue ``about`` and hold the words of ``query`` anywhere."""
    first = datetime.combine(filters.find_first_day(today), time.min, UTC)
    condition = Q(ended_at__gte=first)
    for name in filters.values.keys() & {"flow", "version"}:
        condition &= filters.filters[name].build_condition(filters.values[name])
    condition &= has_row(Issue.objects.filter(about, attempt__step__run=OuterRef("pk")))
    index = filters.choose_index()
    streams = filters.filters[index].build_streams(filters.values[index]) if index else [Stream(Run.objects.all())]
    select = None
    if query is not None:
        # A word to leave out may be elsewhere in the run.
        holding = replace(query, unwanted=())
        hits = fetch_matching_ids(holding, limit=MAX_HITS)
        if hits is not None:
            streams = [Stream(Run.objects.filter(pk__in=hits.ids))]
        if hits is None or not hits.is_exact:
            select = partial(fetch_matching_among, holding)
    streams = [replace(one, rows=one.rows.filter(created_at__gte=first - STREAM_SLACK)) for one in streams]
    matches: Any = check(condition)
    if streams[0].key != "pk":
        matches = Subquery(Run.objects.filter(condition, pk=OuterRef(streams[0].key)).order_by().values("pk")[:1])
    start = before and _find_start(before)
    return scan(streams, limit=limit, before=start, matches=matches, select=select, table=Run)


def _find_start(before: Cursor) -> Position | None:
    """Right before the run of an issue, or right behind a run."""
    position = fetch_position(Run, before.run, time="created_at")
    return position and position._replace(key=before.run + bool(before.issue))


def _parse_words(text: str) -> SearchQuery | None:
    """The words that are searched for; None if there are none."""
    if not text:
        return None
    return parse_search(f'"{text}"' if parse_run_number(text) is not None else text)


def _read(issues: QuerySet[Issue]) -> list[FoundIssue]:
    return [FoundIssue(*row) for row in issues.values_list(*_COLUMNS)]


NO_VALUE = object()
"""There is none, or it is not known."""


def find_values(issues: Collection[FoundIssue]) -> dict[int, Any]:
    """The offending values of issues by their keys: what their paths lead to. One query of their outputs."""
    attempts = {issue.attempt_id for issue in issues if issue.path and len(issue.path) < MAX_TEXT}
    texts = Attempt.objects.filter(pk__in=attempts, output__isnull=False).order_by()
    beginning = Substr(Cast("output", TextField()), 1, MAX_OUTPUT_SIZE)
    outputs = {pk: text for pk, text in texts.values_list("pk", beginning) if len(text) < MAX_OUTPUT_SIZE}
    parsed = {pk: json.loads(text) for pk, text in outputs.items()}
    return {issue.id: _find_value(issue, parsed) for issue in issues}


def _find_value(issue: FoundIssue, outputs: Mapping[int, Any]) -> Any:
    try:
        if issue.path is None:
            return json.loads(issue.context or "{}").get("item", NO_VALUE)
        if not issue.path or issue.attempt_id not in outputs:
            return NO_VALUE
        return resolve_pointer(outputs[issue.attempt_id], issue.path)
    except (LookupError, ValueError, AttributeError):
        # Cut, or it leads nowhere.
        return NO_VALUE


def fetch_ran_versions(flows: Collection[int], first: date) -> dict[int, list[RanVersion]]:
    """The versions of flows that ran since a day, by flow, the oldest first."""
    rows = DailyRuns.objects.filter(flow__in=flows, day__gte=first).order_by("version__number")
    found: dict[int, list[RanVersion]] = {flow: [] for flow in flows}
    columns = ("flow", "version", "version__number")
    for flow, *values in rows.values_list(*columns).annotate(Min("day"), Sum("runs")):
        found[flow].append(RanVersion(*values))
    return found
