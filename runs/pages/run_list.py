"""The list of runs: filters and paging in the URL, and one row a run.

Pages are found by the run number they begin or end at, not by counting: page 5,000 costs what page 1 costs, and a run
that starts meanwhile moves no row to another page.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import F, OuterRef, Subquery
from django.forms import BoundField, ChoiceField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from flows.models import Flow
from runs.filter_fields import parse_run_number, shorten
from runs.filters import PAGING, PARAMETERS, RunFilters, fetch_matching_runs
from runs.formatting import (
    Moment,
    build_moment,
    format_budget,
    format_cost,
    format_count,
    format_duration,
    format_moment,
)
from runs.history.issue_links import anchor_attempt
from runs.history.json_lines import show_invisible
from runs.history.texts import find_direction
from runs.models import Attempt, Priority, Run, RunStatus, Step
from runs.models.run import ENDED
from runs.pages.access import require_permission
from runs.pages.addresses import Pager, find_address, paginate
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.saved_views import load_view_tabs
from runs.search import Excerpt, find_excerpts, parse_search
from runs.search.excerpts import Piece
from runs.statistics.queue_state import runs_without_worker

PAGE_SIZE = 50
MAX_SEGMENTS = 50
MAX_LABELS = 3
"""Labels of a run that its row shows; the others are counted."""
MAX_SEARCH_SECONDS = 5
"""How long a page keeps searching by itself, window by window, for runs that rarely match."""
CONTINUED = ("found", "began")
"""Names in addresses of such a search: how many runs the page has already, and when it began, in seconds."""
FRONT = ("q", "flow", "status")
"""Filters that are always in sight; the others are folded away."""


class StatusChoice(NamedTuple):
    word: str
    value: str
    """Empty for all."""
    url: str
    is_current: bool


class FlowChoice(NamedTuple):
    pk: int
    name: str
    title: str


class FilterChip(NamedTuple):
    """A filter that is set: its name, its value, and the address of the list without it."""

    name: str
    text: str
    url: str


class Segments(NamedTuple):
    """The steps of a run as small boxes: a path for each state, in a drawing of this width."""

    width: int
    paths: tuple[tuple[str, str], ...]


class ExcerptLine(NamedTuple):
    """Where words of a search are in a run, with the address of that attempt."""

    place: str
    url: str
    pieces: tuple[Piece, ...]
    direction: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list, as text."""

    number: int
    url: str
    flow_title: str
    version: int
    state: Badge
    waiting_for: str
    priority: tuple[str, str] | None
    """Word and icon of a high or a low one."""
    labels: tuple[tuple[str, str], ...]
    """With the address of the runs that have it."""
    more_labels: str
    more_count: int
    segments: Segments
    steps: str
    attempts: str
    issues: tuple[tuple[Badge, int], ...]
    duration: str
    tokens: str
    cost: str
    """Empty for a simulated run."""
    user: str
    created: Moment
    excerpts: tuple[ExcerptLine, ...]


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of the list."""

    rows: tuple[RunRow, ...]
    filters: RunFilters
    problems: tuple[str, ...]
    flows: tuple[FlowChoice, ...]
    statuses: tuple[StatusChoice, ...]
    chips: tuple[FilterChip, ...]
    turns: Pager
    searched_to: str
    """When the last run was created that was checked, where the search ended before the page was full."""
    continue_url: str
    """The next window of the search, up to the value of ``began``."""
    began: int
    is_searching: bool
    """Whether the page asks for the next window by itself."""
    number: int | None
    """The run whose number was searched for, if there is one, whatever the other filters say."""
    has_no_worker: bool
    """Runs are queued, and no worker is alive."""

    @property
    def number_url(self) -> str:
        """Where a search for a run number leads, if that run is listed and there is nothing to report first."""
        if self.number is None or not self.rows or self.problems:
            return ""
        return reverse("runs:page", args=[self.number])

    @property
    def is_filtered(self) -> bool:
        return bool(self.chips or self.turns.newest_url or self.filters.statuses)

    @property
    def values(self) -> dict[str, str]:
        """The values of the fields of the form, by their names."""
        texts = self.filters.texts
        return {name: ", ".join(text) if isinstance(text := texts.get(name, ""), list) else text for name in PARAMETERS}

    @property
    def labels(self) -> list[str]:
        """The values of the fields of labels: those that are set, and an empty one."""
        return [*self.filters.values.get("label", ()), ""]

    @property
    def choices(self) -> list[BoundField]:
        """The filters with one of several values, but for severity, which has words of its own."""
        names = [name for name, one in self.filters.filters.items() if one.field_class is ChoiceField]
        return [self.filters.form[name] for name in names if name != "severity"]

    @property
    def folded_count(self) -> int:
        """How many filters are set that are folded away."""
        return sum(1 for name in self.filters.values if name not in FRONT) + (len(self.filters.statuses) > 1)


@require_safe
@require_permission("runs.view_run")
def show_runs(request: HttpRequest) -> HttpResponse:
    """The list of runs, or rows that continue it. A search for the number of a run leads to that run."""
    page = load_run_list(request.GET, timezone.now())
    if page.number_url:
        return redirect(page.number_url)
    if request.headers.get("HX-Request") == "true":
        return render(request, "runs/run_list_more.html", {"page": page})
    context = {
        "page": page,
        "tabs": load_view_tabs(request.user, page.filters, request.GET),
        "query": page.filters.to_query(),
        "compare_url": find_address("runs:compare"),
    }
    return render(request, "runs/run_list.html", context)


def load_run_list(query: Mapping[str, str], now: datetime) -> RunList:
    """Load the page of runs that a query string asks for.

    A value or a name that is not valid gives a sentence in ``problems`` and is left out.
    """
    filters = RunFilters(query)
    before, after, paging_problems = _parse_paging(query)
    listed = min(_parse_number(query.get("found", "")), PAGE_SIZE - 1)
    found = fetch_matching_runs(filters, before=before, after=after, limit=PAGE_SIZE - listed + 1)
    build_url = partial(build_list_url, filters)
    ids, turns = paginate(found, page_size=PAGE_SIZE - listed, before=before, after=after, build_url=build_url)
    began = _parse_number(query["began"]) if "began" in query else int(now.timestamp())
    flows = tuple(map(FlowChoice._make, Flow.objects.order_by("title", "pk").values_list("pk", "name", "title")))
    searched_to = found.searched_to.time if found.searched_to and turns.searched_key is not None else None
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
        chips=_list_chips(filters, {flow.name: flow.title for flow in flows}),
        turns=turns,
        searched_to=format_moment(timezone.localtime(searched_to)) if searched_to else "",
        continue_url=f"{turns.further_url}&found={listed + len(ids)}&began=" if turns.further_url else "",
        began=began,
        is_searching=turns.searched_key is not None
        and not turns.is_upwards
        and now.timestamp() - began < MAX_SEARCH_SECONDS,
        number=_find_number(filters, ids),
        has_no_worker=runs_without_worker().exists(),
    )


def build_list_url(filters: RunFilters, **paging: int) -> str:
    """The address of the list with these filters, from the newest run on or from ``before`` or ``after`` a number."""
    return _build_url("&".join(filter(None, (filters.to_query(), urlencode(paging)))))


def _build_url(query: str) -> str:
    return find_address("runs:list") + (f"?{query}" if query else "")


def _parse_paging(query: Mapping[str, str]) -> tuple[int | None, int | None, tuple[str, ...]]:
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
    chosen = ",".join(filters.statuses)
    return tuple(
        StatusChoice(word, status, _build_url(filters.to_query(status=status)), chosen == status)
        for word, status in choices
    )


def _list_chips(filters: RunFilters, titles: Mapping[str, str]) -> tuple[FilterChip, ...]:
    """A chip for every filter that is set. One status alone has none: the row of statuses shows it."""
    return tuple(
        FilterChip(str(filters.filters[name].label), show_invisible(text), _build_url(filters.to_query(name)))
        for name, value in filters.values.items()
        if (text := _format_filter(name, value, titles, filters.filters[name].field))
    )


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "q": lambda value: f"“{value}”",
    "version": lambda value: f"v{value.number}",
    "status": lambda value: " or ".join(str(RunStatus(one).label) for one in value) if len(value) > 1 else "",
    "severity": lambda value: SEVERITIES[value].word + (" or above" if value != "critical" else ""),
    "label": " and ".join,
    "from": lambda value: _format_time(value.text),
    "to": lambda value: _format_time(value.text),
    "cost": lambda value: f"over {format_budget(value)}",
    "tokens": lambda value: f"over {format_count(value)}",
}


def _format_filter(name: str, value: Any, titles: Mapping[str, str], field: Any) -> str:
    if name in _FORMATS:
        return _FORMATS[name](value)
    if name == "flow":
        return titles.get(value.name, value.name)
    if type(field) is ChoiceField:
        return str(dict(field.choices)[value])  # type: ignore[arg-type]  # pairs of value and word
    return str(value)


def _format_time(text: str) -> str:
    day = date.fromisoformat(text[:10])
    return f"{day.day} {day:%b %Y}{text[10:].replace('T', ' ')}"


def _find_number(filters: RunFilters, ids: Sequence[int]) -> int | None:
    number = parse_run_number(filters.values.get("q", ""))
    is_there = number is not None and (number in ids or Run.objects.filter(pk=number).exists())
    return number if is_there else None


_COLUMNS = (
    *("pk", "flow_id", "version_number", "user_name", "is_simulated", "labels", "priority", "status"),
    *("cancel_requested", "waiting_for", "created_at", "started_at", "ended_at", "step_count", "steps_passed"),
    *("attempt_count", "issues_low", "issues_medium", "issues_high", "issues_critical", "total_tokens", "cost"),
    "unpriced_count",
)
"""What rows show of a run; inputs and the like may be large."""
_Row = namedtuple("_Row", _COLUMNS)  # type: ignore[misc]  # the names are above


def _load_rows(ids: Sequence[int], titles: Mapping[int, str], search: str, now: datetime) -> tuple[RunRow, ...]:
    # Plain values: building objects of all that is joined takes as long as the rest of the page.
    found = Run.objects.filter(pk__in=ids).annotate(
        version_number=F("version__number"), user_name=F("started_by__username")
    )
    rows: dict[int, Any] = {row[0]: _Row._make(row) for row in found.order_by().values_list(*_COLUMNS)}
    runs = [rows[number] for number in ids if number in rows]
    segments = _load_segments([run for run in runs if run.steps_passed < run.step_count])
    excerpts = find_excerpts(ids, parse_search(search)) if search and ids else {}
    begin, _, end = reverse("runs:page", args=[0]).rpartition("0")
    zone = timezone.get_current_timezone()
    return tuple(
        _build_row(
            run,
            f"{begin}{run.pk}{end}",
            titles.get(run.flow_id, ""),
            segments.get(run.pk) or ("passed",) * min(run.step_count, MAX_SEGMENTS),
            excerpts.get(run.pk, ()),
            (now, zone),
        )
        for run in runs
    )


def _build_row(
    run: Any,
    url: str,
    title: str,
    segments: tuple[str, ...],
    excerpts: tuple[Excerpt, ...],
    clock: tuple[datetime, tzinfo],
) -> RunRow:
    now, zone = clock
    is_cancelling = run.status == RunStatus.RUNNING and run.cancel_requested
    return RunRow(
        number=run.pk,
        url=url,
        flow_title=title,
        version=run.version_number,
        state=STATES["cancelling" if is_cancelling else run.status],
        waiting_for=show_invisible(run.waiting_for),
        priority=_PRIORITIES.get(run.priority),
        labels=tuple((show_invisible(label), _link_label(label)) for label in run.labels[:MAX_LABELS]),
        more_labels=show_invisible(", ".join(run.labels[MAX_LABELS:])),
        more_count=max(len(run.labels) - MAX_LABELS, 0),
        segments=_plot_segments(segments),
        steps=f"{run.steps_passed} of {run.step_count}",
        attempts=format_count(run.attempt_count),
        issues=tuple((badge, count) for name, badge in SEVERITIES.items() if (count := getattr(run, f"issues_{name}"))),
        duration=format_duration(((run.ended_at or now) - run.started_at).total_seconds() if run.started_at else None),
        tokens=format_count(run.total_tokens),
        cost="" if run.is_simulated else format_cost(run.cost, run.unpriced_count),
        user=show_invisible(run.user_name or ""),
        created=build_moment(run.created_at, now, zone),
        excerpts=tuple(
            ExcerptLine(
                one.place,
                f"{url}steps/{one.step}/attempts/{one.attempt}/" if one.step else f"{url}#{anchor_attempt(0, 1)}",
                tuple(Piece(show_invisible(piece.text), piece.is_marked) for piece in one.pieces),
                find_direction("".join(piece.text for piece in one.pieces)),
            )
            for one in excerpts
        ),
    )


_PRIORITIES = {
    Priority.HIGH: (str(Priority.HIGH.label), "chevron-double-up"),
    Priority.LOW: (str(Priority.LOW.label), "chevron-double-down"),
}


def _link_label(label: str) -> str:
    return f"{find_address('runs:list')}?{urlencode({'label': label})}"


@lru_cache(maxsize=2_000)
def _plot_segments(states: tuple[str, ...]) -> Segments:
    """Boxes of 11 by 8 in a row, 3 apart; corners are rounded by the stroke."""
    by_state: dict[str, str] = {}
    for position, state in enumerate(states):
        by_state[state] = by_state.get(state, "") + f"M{14 * position + 1} 1h9v6h-9z"
    return Segments(14 * len(states), tuple(by_state.items()))


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
            "waiting" if state == "running" and run.status in ENDED else state
            for index in range(1, min(run.step_count, MAX_SEGMENTS) + 1)
            for state in [states[run.pk].get(index, "waiting")]
        )
        for run in runs
    }


urls = [path("runs/", show_runs, name="list")]
