"""The list of runs: filters and paging in the URL, and one row a run.

Pages are found by the run number they begin or end at, not by counting: page 5,000 costs what page 1 costs, and a run
that starts meanwhile moves no row to another page.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.urls import reverse

from flows.models import Flow
from runs.models import Attempt, Run, RunStatus, Step
from runs.models.run import ENDED
from runs.pages.addresses import find_address
from runs.pages.filter_chips import FilterChip, list_chips
from runs.pages.list_turns import ListTurns, turn_pages
from runs.pages.run_page import run_duration, run_issue_counts, run_state
from runs.prepared_select import PreparedSelect
from runs.run_filters import RunFilters, find_runs, find_unknown_names, read_filters
from runs.run_filters.filters import PARAMETERS, write_value
from runs.run_filters.reading import read_run_number, shorten
from runs.search import Excerpt, find_excerpts, read_query
from runs.statistics.queue_state import runs_without_worker

PAGE_SIZE = 50
MAX_SEGMENTS = 50
PAGING = ("before", "after")
"""Names in addresses that stand beside the filters: a page ends above, or begins below, the run of this number."""
FRONT = ("q", "flow", "status")
"""Filters that are always in sight; the others are folded away."""


@dataclass(frozen=True, slots=True)
class StatusChoice:
    word: str
    value: str
    """Empty for all."""
    url: str
    is_current: bool


class FlowChoice(NamedTuple):
    """A flow to filter by."""

    pk: int
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list; ``segments`` has one state for each step."""

    run: Any
    """The columns of the run that rows show."""
    flow_title: str
    state: str
    counts: tuple[tuple[str, int], ...]
    segments: tuple[str, ...]
    duration: float | None
    excerpts: tuple[Excerpt, ...] = ()
    """Where in it the words stand that are searched for."""


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of the list."""

    rows: tuple[RunRow, ...]
    filters: RunFilters
    problems: tuple[str, ...]
    flows: tuple[FlowChoice, ...]
    statuses: tuple[StatusChoice, ...]
    chips: tuple[FilterChip, ...]
    turns: ListTurns
    number: int | None
    """The run whose number was searched for, if there is one, whatever the other filters say."""
    is_unattended: bool
    """Runs are ready, and no worker is alive."""
    now: datetime

    @property
    def number_url(self) -> str:
        """Where a search for the number of a run leads, if that run is listed and nothing has to be said first."""
        if self.number is None or not self.rows or self.problems:
            return ""
        return reverse("runs:page", args=[self.number])

    @property
    def is_filtered(self) -> bool:
        return bool(self.chips or self.turns.newest_url or self.filters.status)

    @property
    def values(self) -> dict[str, str]:
        """What stands in the fields of the form, by their names."""
        set_values = dict(self.filters.list_set())
        return {name: write_value(set_values[name]) if name in set_values else "" for name in PARAMETERS}

    @property
    def folded_count(self) -> int:
        """How many filters are set that are folded away."""
        return sum(1 for name, _ in self.filters.list_set() if name not in FRONT) + (len(self.filters.statuses) > 1)


def load_run_list(query: Mapping[str, str], now: datetime) -> RunList:
    """Read the page of runs that a query string asks for.

    A value or a name that makes no sense gives a sentence in ``problems`` and is left out.
    """
    filters, problems = read_filters(query)
    before, after, paging_problems = _read_paging(query)
    found = find_runs(filters, before=before, after=after, limit=PAGE_SIZE + 1)
    ids, turns = turn_pages(
        found.ids,
        found.looked_to,
        page_size=PAGE_SIZE,
        before=before,
        after=after,
        build_url=partial(build_list_url, filters),
    )
    flows = tuple(FlowChoice._make(row) for row in _FLOWS.fetch())
    return RunList(
        rows=_load_rows(ids, {flow.pk: flow.title for flow in flows}, filters.search, now),
        filters=filters,
        problems=(*problems, *paging_problems, *find_unknown_names(query, others=PAGING)),
        flows=flows,
        statuses=_list_statuses(filters),
        chips=list_chips(filters, {flow.name: flow.title for flow in flows}, build_list_url),
        turns=turns,
        number=_find_number(filters, ids),
        is_unattended=runs_without_worker().exists(),
        now=now,
    )


def build_list_url(filters: RunFilters, **paging: int) -> str:
    """The address of the list with these filters, from the newest run on or from ``before`` or ``after`` a number."""
    query = "&".join(part for part in (filters.to_query(), *(f"{name}={at}" for name, at in paging.items())) if part)
    return find_address("runs:list") + (f"?{query}" if query else "")


_FLOWS = PreparedSelect(lambda _: Flow.objects.order_by("title", "pk").values_list("pk", "name", "title"))


def _read_paging(query: Mapping[str, str]) -> tuple[int | None, int | None, tuple[str, ...]]:
    problems = []
    numbers: dict[str, int] = {}
    for name in PAGING:
        text = query.get(name, "")
        number = None if text.startswith("#") else read_run_number(text)
        if number is not None:
            numbers[name] = number
        elif text:
            problems.append(f"“{shorten(text)}” is not a run number; the newest runs are shown.")
    if len(numbers) == 2:
        problems.append("“before” and “after” can’t be combined; the newest runs are shown.")
        numbers = {}
    return numbers.get("before"), numbers.get("after"), tuple(problems)


def _list_statuses(filters: RunFilters) -> tuple[StatusChoice, ...]:
    choices = (("All", ""), *((str(status.label), status.value) for status in RunStatus))
    all_url = build_list_url(replace(filters, status=""))
    # The address of one status is that of another: in other values “=” is written “%3D”.
    any_url = build_list_url(replace(filters, status="any"))
    return tuple(
        StatusChoice(
            word,
            status,
            any_url.replace("status=any", f"status={status}") if status else all_url,
            filters.status == status,
        )
        for word, status in choices
    )


def _find_number(filters: RunFilters, ids: Sequence[int]) -> int | None:
    number = read_run_number(filters.search)
    is_there = number is not None and (number in ids or Run.objects.filter(pk=number).exists())
    return number if is_there else None


def _load_rows(ids: Sequence[int], titles: Mapping[int, str], search: str, now: datetime) -> tuple[RunRow, ...]:
    # Plain values: to build objects of all that is joined takes as long as the rest of the page.
    rows: dict[int, Any] = {row[0]: _Row._make(row) for row in _ROWS.fetch(ids)}
    runs = [rows[number] for number in ids if number in rows]
    segments = _load_segments([run for run in runs if run.steps_passed < run.step_count])
    excerpts = find_excerpts(ids, read_query(search)) if search and ids else {}
    return tuple(
        RunRow(
            run=run,
            flow_title=titles.get(run.flow_id, ""),
            state=run_state(run),
            counts=run_issue_counts(run),
            segments=segments.get(run.pk) or ("passed",) * min(run.step_count, MAX_SEGMENTS),
            duration=run_duration(run, now),
            excerpts=excerpts.get(run.pk, ()),
        )
        for run in runs
    )


_COLUMNS = (
    "pk",
    "flow_id",
    "version_number",
    "user_name",
    "is_simulated",
    "labels",
    "priority",
    "status",
    "cancel_requested",
    "waiting_for",
    "created_at",
    "started_at",
    "ended_at",
    "step_count",
    "steps_passed",
    "attempt_count",
    "issues_low",
    "issues_medium",
    "issues_high",
    "issues_critical",
    "total_tokens",
    "cost",
    "unpriced_count",
)
"""What rows show of a run; inputs and the like may be large."""
_Row = namedtuple("_Row", _COLUMNS)  # type: ignore[misc]  # the names stand above


def _select_rows(ids: Sequence[int]) -> QuerySet[Any, Any]:
    return (
        Run.objects.filter(pk__in=ids)
        .annotate(version_number=F("version__number"), user_name=F("started_by__username"))
        .order_by()
        .values_list(*_COLUMNS)
    )


_ROWS = PreparedSelect(_select_rows, most=PAGE_SIZE)

_SEGMENTS = {
    None: "waiting",
    "": "running",
    "passed": "passed",
    "failed": "failed",
    "invalid": "failed",
    "errored": "errored",
}


def _load_segments(runs: list[Any]) -> dict[int, tuple[str, ...]]:
    """The state of every step of these runs, by run: that of its last attempt that counts."""
    states: dict[int, dict[int, str]] = {run.pk: {} for run in runs}
    for run_id, index, outcome in _OUTCOMES.fetch([run.pk for run in runs]):
        states[run_id][index] = _SEGMENTS[outcome]
    return {
        run.pk: tuple(
            _settle(states[run.pk].get(index, "waiting"), run)
            for index in range(1, min(run.step_count, MAX_SEGMENTS) + 1)
        )
        for run in runs
    }


def _select_outcomes(ids: Sequence[int]) -> QuerySet[Any, Any]:
    last = Attempt.objects.filter(step=OuterRef("pk")).exclude(outcome__in=["interrupted", "cancelled"])
    steps = Step.objects.filter(run__in=ids).annotate(outcome=Subquery(last.order_by("-number").values("outcome")[:1]))
    return steps.order_by().values_list("run_id", "index", "outcome")


_OUTCOMES = PreparedSelect(_select_outcomes, most=PAGE_SIZE)


def _settle(state: str, run: Any) -> str:
    return "waiting" if state == "running" and run.status in ENDED else state
