"""The list of runs: filters and paging in the URL, and one row a run.

Pages are found by the run number they begin or end at, not by counting: page 5,000 costs what page 1 costs, and a run
that starts meanwhile moves no row to another page.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import F
from django.forms import ChoiceField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from flows.models import Flow
from runs.facets import list_known_values
from runs.filter_fields import parse_run_number
from runs.filters import PAGING, PARAMETERS, RunFilters
from runs.formatting import format_budget, format_count, format_duration, format_moment
from runs.history.issues import address_attempt, anchor_attempt
from runs.history.texts import show_invisible
from runs.matching_runs import fetch_matching_runs
from runs.models import Attempt, Priority, Run, RunStatus, SavedView, Step
from runs.models.run import ENDED
from runs.models.saved_view import MAX_VIEWS, NameTakenError, TooManyViewsError, parse_name
from runs.pages.access import require_permission, require_viewer
from runs.pages.addresses import link_runs, paginate, parse_paging
from runs.pages.badges import SEVERITIES, STATES, count_run_issues, find_run_state
from runs.search import Excerpt, find_excerpts, parse_search
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
LAID_OUT = frozenset(
    (*FRONT, "severity", "audit", "code", "model", "from", "to", "cost", "tokens", "label", "by", "version")
)
"""Filters whose fields the template lays out; all others get a choice, or a field for text."""


@require_viewer
def show_runs(request: HttpRequest) -> HttpResponse:
    """The list of runs. A search for the number of a run leads to that run, if nothing is to be reported first."""
    page = load_run_list(request.GET, timezone.now())
    if page["number"] and page["rows"] and not page["warnings"]:
        return redirect("runs:page", page["number"])
    views = load_views(request.user, page["filters"], request.GET)
    return render(request, "runs/run_list.html", {**page, **views})


def load_run_list(query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the list shows for a query string; what is not valid in it gives a sentence and is left out.

    A page that is not full may go on searching for some seconds: it asks for ``continue_url`` with ``began``.
    """
    filters = RunFilters(query)
    problems = list_problems(filters, (*PAGING, *CONTINUED))
    before, after = parse_paging(query, problems)
    listed = min(_parse_number(query.get("found", "")), PAGE_SIZE - 1)
    found = fetch_matching_runs(filters, before=before, after=after, limit=PAGE_SIZE - listed + 1)
    build_url = partial(build_list_url, filters)
    ids, pager = paginate(found, page_size=PAGE_SIZE - listed, before=before, after=after, build_url=build_url)
    began = _parse_number(query["began"]) if "began" in query else int(now.timestamp())
    flows = list(Flow.objects.only("name", "title").order_by("title", "pk"))
    last = None if pager.searched_key is None else found.searched_to
    statuses, number = ",".join(filters.statuses), _find_number(filters, ids)
    chips = list_chips(filters, {flow.name: flow.title for flow in flows}, link_runs)
    return {
        "rows": _load_rows(ids, {flow.pk: flow.title for flow in flows}, filters.values.get("q", ""), now),
        "filters": filters,
        "warnings": problems,
        "flows": flows,
        "more_fields": [filters.form[name] for name in PARAMETERS if name not in LAID_OUT],
        "labels": [*filters.values.get("label", ()), ""],
        "statuses": [
            (word, status, link_runs(filters.to_query(status=status)), statuses == status)
            for status, word in (("", "All"), *RunStatus.choices)
        ],
        "chips": chips,
        "folded_count": len(filters.values.keys() - set(FRONT)) + (len(filters.statuses) > 1),
        "is_filtered": bool(chips or pager.newest_url or statuses),
        "pager": pager,
        "searched_to": format_moment(timezone.localtime(last.time)) if last else "",
        "continue_url": f"{pager.further_url}&found={listed + len(ids)}&began=",
        "began": began,
        "is_searching": last is not None and not pager.is_upwards and now.timestamp() - began < MAX_SEARCH_SECONDS,
        "number": number,
        "has_no_worker": runs_without_worker().exists(),
    }


def build_list_url(filters: RunFilters, **paging: int) -> str:
    """The address of the list with these filters, from the newest run on or from ``before`` or ``after`` a number."""
    return link_runs("&".join(filter(None, (filters.to_query(), urlencode(paging)))))


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def list_problems(filters: RunFilters, others: Collection[str]) -> list[str]:
    """Sentences about what is not valid in the filters of a list; ``others`` are names allowed beside them."""
    sentences = [f"{problem.message} The filter is left out." for problem in filters.problems]
    return [*sentences, *filters.find_unknown_names(others)]


def list_chips(
    filters: RunFilters, titles: Mapping[str, str], build_url: Callable[[str], str]
) -> list[tuple[str, str, str]]:
    """The filters that are set: label, value, and the address of the list without it. ``titles`` are those of flows.

    One status alone has none: the row of statuses shows it.
    """
    return [
        (str(filters.filters[name].label), show_invisible(text), build_url(filters.to_query(name)))
        for name, value in filters.values.items()
        if (text := _format_filter(name, value, titles, filters.filters[name].field))
    ]


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
    "accepted": lambda value: f"{format_count(value)} or more",
    "order": lambda value: "",
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
    *("unpriced_count", "accepted_count"),
)
"""What rows show of a run; inputs and the like may be large."""


def _load_rows(ids: Sequence[int], titles: Mapping[int, str], search: str, now: datetime) -> list[dict[str, Any]]:
    # Plain values: building objects takes as long as the rest of the page.
    found = Run.objects.filter(pk__in=ids).annotate(
        version_number=F("version__number"), user_name=F("started_by__username")
    )
    by_id: dict[int, Any] = {run.pk: run for run in found.order_by().values_list(*_COLUMNS, named=True)}
    runs = [by_id[number] for number in ids if number in by_id]
    states = _load_segments([run for run in runs if run.steps_passed < run.step_count])
    excerpts = find_excerpts(ids, parse_search(search)) if search and ids else {}
    begin, _, end = reverse("runs:page", args=[0]).rpartition("0")
    rows = []
    for run in runs:
        url = f"{begin}{run.pk}{end}"
        seconds = ((run.ended_at or now) - run.started_at).total_seconds() if run.started_at else None
        rows.append(
            {
                "run": run,
                "url": url,
                "title": titles.get(run.flow_id, ""),
                "state": STATES[find_run_state(run)],
                "priority": _PRIORITIES.get(run.priority),
                "labels": run.labels[:MAX_LABELS],
                "more_labels": show_invisible(", ".join(run.labels[MAX_LABELS:])),
                "more_count": len(run.labels) - MAX_LABELS,
                "segments": _plot_segments(states.get(run.pk) or ("passed",) * min(run.step_count, MAX_SEGMENTS)),
                "issues": count_run_issues(run),
                "duration": format_duration(seconds),
                "excerpts": [_describe_excerpt(one, url) for one in excerpts.get(run.pk, ())],
            }
        )
    return rows


def _describe_excerpt(excerpt: Excerpt, url: str) -> dict[str, Any]:
    """Where words of a search are in the run at ``url``, with the address of that attempt."""
    attempt = address_attempt(excerpt.step, excerpt.attempt) if excerpt.step else f"#{anchor_attempt(0, 1)}"
    text = "".join(piece.text for piece in excerpt.pieces)
    return {"place": excerpt.place, "url": url + attempt, "pieces": excerpt.pieces, "text": text}


_PRIORITIES: Mapping[int, tuple[str, str]] = {
    Priority.HIGH: ("High", "chevron-double-up"),
    Priority.LOW: ("Low", "chevron-double-down"),
}


@lru_cache(maxsize=2_000)
def _plot_segments(states: tuple[str, ...]) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Steps as boxes of 11 by 8 in a row, 3 apart: the width, and a path for each state. The stroke rounds corners."""
    by_state: dict[str, str] = {}
    for position, state in enumerate(states):
        by_state[state] = by_state.get(state, "") + f"M{14 * position + 1} 1h9v6h-9z"
    return 14 * len(states), tuple(by_state.items())


_SEGMENTS = {
    None: "waiting",
    "": "running",
    "passed": "passed",
    "accepted": "accepted",
    "failed": "failed",
    "invalid": "failed",
    "errored": "errored",
    "cancelled": "waiting",
}


def _load_segments(runs: list[Any]) -> dict[int, tuple[str, ...]]:
    """The state of every step of these runs, by run: that of the attempt that counts for it."""
    states: dict[int, dict[int, str]] = {run.pk: {} for run in runs}
    steps = Step.objects.filter(run__in=states).annotate(state=Attempt.objects.build_deciding_state())
    for run_id, index, state in steps.order_by().values_list("run_id", "index", "state"):
        states[run_id][index] = _SEGMENTS[state]
    return {
        run.pk: tuple(
            "waiting" if state == "running" and run.status in ENDED else state
            for index in range(1, min(run.step_count, MAX_SEGMENTS) + 1)
            for state in [states[run.pk].get(index, "waiting")]
        )
        for run in runs
    }


# Saved views: tabs above the list


def load_views(user: User | AnonymousUser, filters: RunFilters, given: QueryDict) -> dict[str, Any]:
    """What the list shows of the views that ``user`` sees: the user's own, then those that others share. One query.

    ``given`` is the query that ``filters`` were read from: a view may hold filters that are no longer valid, such as
    the former name of a flow, and is nonetheless the current one.
    """
    seen = SavedView.objects.seen_by(user.pk or 0).select_related("owner")
    rows = list(seen.only("name", "query", "is_shared", "owner__username"))
    own = [view for view in rows if view.owner_id == user.pk]
    views = own + [view for view in rows if view.owner_id != user.pk][:MAX_VIEWS]
    written = {name: values for name, values in given.lists() if name in PARAMETERS and any(values)}
    query = filters.to_query()
    current = next((view.query for view in rows if dict(QueryDict(view.query).lists()) == written), query)
    return {
        "views": [(view, link_runs(view.query)) for view in views],
        "current_view": next((view for view in views if view.query == current), None),
        "query": query,
        "can_save": bool(query) and all(view.query != query for view in own),
    }


@require_POST
@require_permission("runs.view_run")
def save_view(request: HttpRequest) -> HttpResponseRedirect:
    """Save filters under a name, and return to the list with them; a message says what became of it."""
    query = RunFilters(request.POST.get("query", "")).to_query()
    is_shared = request.POST.get("shared") == "yes" and request.user.has_perm("runs.change_run")
    try:
        name = parse_name(request.POST.get("name", ""))
        if not query:
            raise ValueError("Choose filters first: a view without any is the list itself.")
        SavedView.objects.store(owner_id=request.user.pk or 0, name=name, query=query, is_shared=is_shared)
    except (ValueError, TooManyViewsError, NameTakenError) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The view “{name}” is saved{' and shared with all users' if is_shared else ''}.")
    return HttpResponseRedirect(link_runs(query))


@require_POST
@require_permission("runs.view_run")
def delete_view(request: HttpRequest, view_id: int) -> HttpResponseRedirect:
    """Delete one of the user's own views; the filters stay on."""
    view = get_object_or_404(SavedView, pk=view_id, owner=request.user.pk)
    view.delete()
    messages.success(request, f"The view “{show_invisible(view.name)}” is deleted.")
    return HttpResponseRedirect(link_runs(view.query))


@require_viewer
def show_known_values(request: HttpRequest) -> HttpResponse:
    """Values that runs have, which the fields of the filters suggest."""
    return render(request, "runs/filter_values.html", {"known": list_known_values().items()})
