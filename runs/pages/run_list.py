"""The list of runs: filters and paging in the URL, and one row a run.

Pages are found by the run number they begin or end at, not by counting: page 5,000 costs what page 1 costs, and a run
that starts meanwhile moves no row to another page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import OuterRef, Subquery
from django.urls import reverse

from flows.models import Flow
from runs.models import Attempt, Run, RunStatus, Step
from runs.pages.run_page import run_duration, run_issue_counts, run_state
from runs.queue_figures import unattended_runs

PAGE_SIZE = 50
MAX_SEGMENTS = 50
_LARGEST_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RunFilters:
    """What the URL asks for. ``before`` and ``after`` are run numbers; at most one of them is set."""

    flow: str = ""
    status: str = ""
    before: int | None = None
    after: int | None = None

    def build_url(self, **changes: str | int | None) -> str:
        """The address of the list with these filters and ``changes``; paging begins anew unless it is among them."""
        wanted: dict[str, str | int | None] = {"flow": self.flow, "status": self.status, **changes}
        query = urlencode({name: value for name, value in wanted.items() if value})
        return reverse("runs:list") + (f"?{query}" if query else "")


@dataclass(frozen=True, slots=True)
class StatusChoice:
    word: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list; ``segments`` has one state for each step."""

    run: Run
    state: str
    counts: tuple[tuple[str, int], ...]
    segments: tuple[str, ...]
    duration: float | None


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of the list."""

    rows: tuple[RunRow, ...]
    filters: RunFilters
    problems: tuple[str, ...]
    flows: tuple[Flow, ...]
    statuses: tuple[StatusChoice, ...]
    newer_url: str
    older_url: str
    is_unattended: bool
    """Runs are ready, and no worker is alive."""
    now: datetime

    @property
    def is_filtered(self) -> bool:
        return bool(self.filters.flow or self.filters.status or self.filters.before or self.filters.after)


def load_run_list(query: Mapping[str, str], now: datetime) -> RunList:
    """Read the page of runs that a query string asks for.

    A value that makes no sense gives a sentence in ``problems`` and is left out.
    """
    flows = tuple(Flow.objects.only("name", "title").order_by("title", "pk"))
    filters, problems = _read_filters(query, {flow.name for flow in flows})
    runs = Run.objects.select_related("flow", "version", "started_by").defer(
        "input", "model_settings", "end_sentence", "flow__input_schema", "flow__description", "version__spec"
    )
    if filters.flow:
        runs = runs.filter(flow__name=filters.flow)
    if filters.status:
        runs = runs.filter(status=filters.status)
    if filters.after is not None:
        found = list(runs.filter(pk__gt=filters.after).order_by("pk")[: PAGE_SIZE + 1])
        has_newer, has_older = len(found) > PAGE_SIZE, True
        page = found[:PAGE_SIZE][::-1]
    else:
        if filters.before is not None:
            runs = runs.filter(pk__lt=filters.before)
        found = list(runs.order_by("-pk")[: PAGE_SIZE + 1])
        has_newer, has_older = filters.before is not None, len(found) > PAGE_SIZE
        page = found[:PAGE_SIZE]
    segments = _load_segments(page)
    return RunList(
        rows=tuple(
            RunRow(
                run=run,
                state=run_state(run),
                counts=run_issue_counts(run),
                segments=segments[run.pk],
                duration=run_duration(run, now),
            )
            for run in page
        ),
        filters=filters,
        problems=problems,
        flows=flows,
        statuses=(
            StatusChoice("All", filters.build_url(status=None), not filters.status),
            *(
                StatusChoice(str(status.label), filters.build_url(status=status.value), filters.status == status)
                for status in RunStatus
            ),
        ),
        newer_url=filters.build_url(after=page[0].pk) if has_newer and page else "",
        older_url=filters.build_url(before=page[-1].pk) if has_older and page else "",
        is_unattended=unattended_runs().exists(),
        now=now,
    )


def _read_filters(query: Mapping[str, str], flows: set[str]) -> tuple[RunFilters, tuple[str, ...]]:
    problems = []
    flow = query.get("flow", "")
    if flow and flow not in flows:
        problems.append(f"There is no flow “{_shorten(flow)}”; runs of all flows are shown.")
        flow = ""
    status = query.get("status", "")
    if status and status not in RunStatus.values:
        problems.append(
            f"“{_shorten(status)}” is not a status; it can be {', '.join(RunStatus.values)}. All runs are shown."
        )
        status = ""
    numbers: dict[str, int] = {}
    for name in ("before", "after"):
        text = query.get(name, "")
        if text and text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _LARGEST_NUMBER:
            numbers[name] = int(text)
        elif text:
            problems.append(f"“{_shorten(text)}” is not a run number; the newest runs are shown.")
    if len(numbers) == 2:
        problems.append("“before” and “after” can’t be combined; the newest runs are shown.")
        numbers = {}
    return RunFilters(flow, status, numbers.get("before"), numbers.get("after")), tuple(problems)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


_SEGMENTS = {
    None: "waiting",
    "": "running",
    "passed": "passed",
    "failed": "failed",
    "invalid": "failed",
    "errored": "errored",
}


def _load_segments(runs: list[Run]) -> dict[int, tuple[str, ...]]:
    """The state of every step of these runs, by run: that of its last attempt that counts."""
    last = Attempt.objects.filter(step=OuterRef("pk")).exclude(outcome__in=["interrupted", "cancelled"])
    steps = Step.objects.filter(run__in=[run.pk for run in runs]).annotate(
        outcome=Subquery(last.order_by("-number").values("outcome")[:1])
    )
    states: dict[int, dict[int, str]] = {run.pk: {} for run in runs}
    for run_id, index, outcome in steps.values_list("run_id", "index", "outcome"):
        states[run_id][index] = _SEGMENTS[outcome]
    return {
        run.pk: tuple(
            _settle(states[run.pk].get(index, "waiting"), run)
            for index in range(1, min(run.step_count, MAX_SEGMENTS) + 1)
        )
        for run in runs
    }


def _settle(state: str, run: Run) -> str:
    return "waiting" if state == "running" and run.has_ended else state
