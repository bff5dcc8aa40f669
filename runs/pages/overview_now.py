"""What goes on at this moment: runs under way, runs that failed lately, the queue and its workers.

Each part is told from an earlier one by what it says, not by how long ago that was: a script counts on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string

from runs.history.texts import SHORT_TEXT
from runs.models import Run, RunStatus
from runs.models.run import RunQuerySet
from runs.pages.list_links import link_runs
from runs.pages.run_page import run_state
from runs.pages.verdict import read_verdict
from runs.statistics.queue_state import MAX_SHOWN, QueueState, fetch_queue_state

MOST_RUNS = 10
MOST_FAILED = 8
"""As many as stand beside the figures of today and a chart."""
_MOST_COUNTED = 1_000
"""Running runs that are counted: more than a worker or two have places for."""
PARTS = ("notice", "queue", "running", "failed")
"""What is replaced on its own when it changes; each has a template and an element of that name."""


@dataclass(frozen=True, slots=True)
class RunningRun:
    """One run under way; ``progress`` is the share of its steps that passed, in per cent."""

    run: Run
    state: str
    progress: int


@dataclass(frozen=True, slots=True)
class FailedRun:
    """One run that failed, and why: ``linked`` leads to the attempt to blame, ``rest`` follows it."""

    run: Run
    linked: str
    rest: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the page; parts of the same ``digest`` say the same."""

    name: str
    digest: str
    context: Mapping[str, Any]

    @property
    def html(self) -> str:
        return render_to_string(f"runs/overview_{self.name}.html", dict(self.context))


def read_parts(now: datetime) -> tuple[Part, ...]:
    """The parts as they are now. Costs eight queries, each of which reads the few rows that it shows off an index."""
    found = fetch_queue_state(limit=MAX_SHOWN)
    running, has_more = _find_running()
    failed = _find_failed()
    figures = _describe_workers(found)
    queued = (found.ready, found.later, found.waiting, sorted(found.more))
    said: tuple[tuple[Any, Mapping[str, Any]], ...] = (
        (found.is_unattended, {"found": found}),
        ((figures, queued), {**figures, "found": found}),
        (
            [has_more, *((one.run.pk, one.run.revision) for one in running)],
            {"running": running, "has_more": has_more, "url": link_runs(status="running")},
        ),
        ([one.run.pk for one in failed], {"failed": failed, "url": link_runs(status="failed,errored")}),
    )
    return tuple(
        Part(name, _digest(what), {**context, "now": now}) for name, (what, context) in zip(PARTS, said, strict=True)
    )


def _digest(what: Any) -> str:
    return hashlib.blake2s(repr(what).encode(), digest_size=6).hexdigest()


def name_parts(parts: tuple[Part, ...]) -> str:
    """What a page has, for asking what changed since."""
    return ".".join(part.digest for part in parts)


def _describe_workers(found: QueueState) -> dict[str, Any]:
    return {
        "alive": sum(worker.state != "silent" for worker in found.workers),
        "silent": sum(worker.state == "silent" for worker in found.workers),
        "taken": _count_taken(found),
        "slots": found.slots,
    }


def _count_taken(found: QueueState) -> int:
    """Places of workers that are taken, as many as there are at most.

    Workers tell of theirs with each heartbeat; until the next one the runs themselves know better. Those whose worker
    died are running too, in no place.
    """
    running = Run.objects.running().order_by()[:_MOST_COUNTED].count()
    return min(max(found.in_flight, running), found.slots)


def _find_running() -> tuple[list[RunningRun], bool]:
    found = [
        RunningRun(run, run_state(run), round(100 * run.steps_passed / run.step_count) if run.step_count else 0)
        for run in _select_runs().running().order_by("-created_at", "-pk")[: MOST_RUNS + 1]
    ]
    return found[:MOST_RUNS], len(found) > MOST_RUNS


def _find_failed() -> list[FailedRun]:
    """The runs that failed or ended with an error last."""
    found: list[Run] = []
    # One status at a time: both together are in no order of an index.
    for status in (RunStatus.FAILED, RunStatus.ERRORED):
        newest = Run.objects.filter(status=status, ended_at__isnull=False).order_by("-ended_at")
        # Found by themselves: SQLite would begin with the versions that are joined, and read all of their runs.
        found += _select_runs().filter(pk__in=newest.values("pk")[:MOST_FAILED])
    found.sort(key=lambda run: run.ended_at or run.created_at, reverse=True)
    return [_explain_failure(run) for run in found[:MOST_FAILED]]


def _explain_failure(run: Run) -> FailedRun:
    verdict = read_verdict(run, most=SHORT_TEXT)
    if verdict is None:
        return FailedRun(run, "", str(run.get_end_reason_display()), "")
    if not verdict.anchor:
        return FailedRun(run, "", str(verdict.lead), "")
    if not verdict.lead:
        return FailedRun(run, verdict.linked, str(verdict.rest), verdict.anchor)
    place = f"Step {run.blocking_step}, attempt {run.blocking_attempt}"
    return FailedRun(run, place, f": {verdict.lead}", verdict.anchor)


def _select_runs() -> RunQuerySet:
    """Runs with the columns that the page shows; others may be large."""
    return Run.objects.select_related("flow", "version").only(
        *("status", "cancel_requested", "revision", "started_at", "ended_at", "end_reason", "end_sentence"),
        *("blocking_step", "blocking_attempt", "step_count", "steps_passed", "attempt_count"),
        *("flow__title", "version__number"),
    )
