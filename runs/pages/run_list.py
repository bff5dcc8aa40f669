"""The list of runs: filters and paging in the URL, and one row a run.

Pages are found by the run number they begin or end at, not by counting: page 5,000 costs what page 1 costs, and a run
that starts meanwhile moves no row to another page.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from django.db.models import F, OuterRef, Subquery
from django.forms import BoundField, ChoiceField
from django.urls import reverse

from flows.models import Flow
from runs.filter_fields import parse_run_number, shorten
from runs.filters import PAGING, PARAMETERS, RunFilters, fetch_matching_runs
from runs.models import Attempt, Run, RunStatus, Step
from runs.models.run import ENDED
from runs.pages.addresses import find_address
from runs.pages.filter_chips import FilterChip, list_chips
from runs.pages.list_turns import ListTurns, turn_pages
from runs.pages.run_page import run_duration, run_issue_counts, run_state
from runs.search import Excerpt, find_excerpts, parse_search
from runs.statistics.queue_state import runs_without_worker

PAGE_SIZE = 50
MAX_SEGMENTS = 50
MAX_SEARCH_SECONDS = 5
"""How long a page keeps searching by itself, window by window, for runs that rarely match."""
CONTINUED = ("found", "began")
"""Names in addresses of such a search: how many runs the page has already, and when it began, in seconds."""
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
    searched_to: datetime | None
    """When the last run was created that was checked, where the search ended before the page was full."""
    continue_url: str
    """The next window of the search, up to the value of ``began``."""
    began: int
    is_searching: bool
    """Whether the page asks for the next window by itself."""
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
        return bool(self.chips or self.turns.newest_url or self.filters.statuses)

    @property
    def values(self) -> dict[str, str]:
        """What stands in the fields of the form, by their names."""
        texts = self.filters.texts
        return {name: ", ".join(text) if isinstance(text := texts.get(name, ""), list) else text for name in PARAMETERS}

    @property
    def labels(self) -> list[str]:
        """What stands in the fields of labels: those that are set, and an empty one."""
        return [*self.filters.values.get("label", ()), ""]

    @property
    def choices(self) -> list[BoundField]:
        """The filters with one of several values, but for severity, which is put in other words."""
        names = [name for name, one in self.filters.filters.items() if one.field_class is ChoiceField]
        return [self.filters.form[name] for name in names if name != "severity"]

    @property
    def folded_count(self) -> int:
        """How many filters are set that are folded away."""
        return sum(1 for name in self.filters.values if name not in FRONT) + (len(self.filters.statuses) > 1)


def load_run_list(query: Mapping[str, str], now: datetime) -> RunList:
    """Read the page of runs that a query string asks for.

    A value or a name that makes no sense gives a sentence in ``problems`` and is left out.
    """
    filters = RunFilters(query)
    before, after, paging_problems = _read_paging(query)
    listed = min(_parse_number(query.get("found", "")), PAGE_SIZE - 1)
    found = fetch_matching_runs(filters, before=before, after=after, limit=PAGE_SIZE - listed + 1)
    ids, turns = turn_pages(
        found,
        page_size=PAGE_SIZE - listed,
        before=before,
        after=after,
        build_url=partial(build_list_url, filters),
    )
    began = _parse_number(query["began"]) if "began" in query else int(now.timestamp())
    flows = tuple(map(FlowChoice._make, Flow.objects.order_by("title", "pk").values_list("pk", "name", "title")))
    return RunList(
        rows=_load_rows(ids, {flow.pk: flow.title for flow in flows}, filters.values.get("q", ""), now),
        filters=filters,
        problems=(
            *(f"{problem.message} The filter is left out." for problem in filters.problems),
            *paging_problems,
            *filters.find_unknown_names((*PAGING, *CONTINUED)),
        ),
        flows=flows,
        statuses=_list_statuses(filters),
        chips=list_chips(filters, {flow.name: flow.title for flow in flows}, partial(_build_url_without, filters)),
        turns=turns,
        searched_to=found.searched_to.time if found.searched_to and turns.searched_key is not None else None,
        continue_url=f"{turns.further_url}&found={listed + len(ids)}&began=" if turns.further_url else "",
        began=began,
        is_searching=turns.searched_key is not None
        and not turns.is_upwards
        and now.timestamp() - began < MAX_SEARCH_SECONDS,
        number=_find_number(filters, ids),
        is_unattended=runs_without_worker().exists(),
        now=now,
    )


def build_list_url(filters: RunFilters, **paging: int) -> str:
    """The address of the list with these filters, from the newest run on or from ``before`` or ``after`` a number."""
    query = "&".join(part for part in (filters.to_query(), *(f"{name}={at}" for name, at in paging.items())) if part)
    return find_address("runs:list") + (f"?{query}" if query else "")


def _build_url_without(filters: RunFilters, name: str) -> str:
    query = filters.to_query(name)
    return find_address("runs:list") + (f"?{query}" if query else "")


def _read_paging(query: Mapping[str, str]) -> tuple[int | None, int | None, tuple[str, ...]]:
    problems = []
    numbers: dict[str, int] = {}
    for name in PAGING:
        text = query.get(name, "")
        number = None if text.startswith("#") else parse_run_number(text)
        if number is not None:
            numbers[name] = number
        elif text:
            problems.append(f"“{shorten(text)}” is not a run number; the newest runs are shown.")
    if len(numbers) == 2:
        problems.append("“before” and “after” can’t be combined; the newest runs are shown.")
        numbers = {}
    return numbers.get("before"), numbers.get("after"), tuple(problems)


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def _list_statuses(filters: RunFilters) -> tuple[StatusChoice, ...]:
    choices = (("All", ""), *((str(status.label), status.value) for status in RunStatus))
    address, chosen = find_address("runs:list"), ",".join(filters.statuses)
    queries = [filters.to_query(status=status) for _, status in choices]
    return tuple(
        StatusChoice(word, status, f"{address}?{query}" if query else address, chosen == status)
        for (word, status), query in zip(choices, queries, strict=True)
    )


def _find_number(filters: RunFilters, ids: Sequence[int]) -> int | None:
    number = parse_run_number(filters.values.get("q", ""))
    is_there = number is not None and (number in ids or Run.objects.filter(pk=number).exists())
    return number if is_there else None


def _load_rows(ids: Sequence[int], titles: Mapping[int, str], search: str, now: datetime) -> tuple[RunRow, ...]:
    # Plain values: to build objects of all that is joined takes as long as the rest of the page.
    found = Run.objects.filter(pk__in=ids).annotate(
        version_number=F("version__number"), user_name=F("started_by__username")
    )
    rows: dict[int, Any] = {row[0]: _Row._make(row) for row in found.order_by().values_list(*_COLUMNS)}
    runs = [rows[number] for number in ids if number in rows]
    segments = _load_segments([run for run in runs if run.steps_passed < run.step_count])
    excerpts = find_excerpts(ids, parse_search(search)) if search and ids else {}
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
    last = Attempt.objects.filter(step=OuterRef("pk")).exclude(outcome__in=["interrupted", "cancelled"])
    steps = Step.objects.filter(run__in=states).annotate(
        outcome=Subquery(last.order_by("-number").values("outcome")[:1])
    )
    for run_id, index, outcome in steps.order_by().values_list("run_id", "index", "outcome"):
        states[run_id][index] = _SEGMENTS[outcome]
    return {
        run.pk: tuple(
            _settle(states[run.pk].get(index, "waiting"), run)
            for index in range(1, min(run.step_count, MAX_SEGMENTS) + 1)
        )
        for run in runs
    }


def _settle(state: str, run: Any) -> str:
    return "waiting" if state == "running" and run.status in ENDED else state
