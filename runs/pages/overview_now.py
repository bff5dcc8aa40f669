"""What goes on at this moment: runs under way, runs that failed lately, the queue and its workers.

Each part is told from an earlier one by what it says, not by how long ago that was: a script counts on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string

from runs.models import Run, RunStatus
from runs.pages.json_lines import show_invisible
from runs.pages.list_links import link_runs
from runs.pages.run_page import run_state
from runs.queue_figures import QueueFigures, read_queue_figures

MOST_RUNS = 10
_MOST_COUNTED = 1_000
"""Running runs that are counted: more than a worker or two have places for."""
PARTS = ("notice", "queue", "running", "failed")
"""What is replaced on its own when it changes; each has a template and an element of that name."""
_BARE = ("version__spec", "flow__input_schema", "flow__description", "input", "model_settings", "labels")


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
    """The parts as they are now. Costs six queries, each of which reads the few rows that it shows off an index."""
    found = read_queue_figures()
    running, has_more = _find_running()
    failed = _find_failed()
    figures = _describe_queue(found)
    said: tuple[tuple[Any, Mapping[str, Any]], ...] = (
        (found.is_unattended, {"found": found}),
        (figures, figures),
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


def _describe_queue(found: QueueFigures) -> dict[str, Any]:
    return {
        "alive": sum(worker.state != "silent" for worker in found.workers),
        "silent": sum(worker.state == "silent" for worker in found.workers),
        "taken": _count_taken(found),
        "slots": found.slots,
        "ready": found.ready,
        "waiting": found.later + found.waiting,
    }


def _count_taken(found: QueueFigures) -> int:
    """Places of workers that are taken, as many as there are at most.

    Workers tell of theirs with each heartbeat; until the next one the runs themselves know better. Those whose worker
    died are running too, in no place.
    """
    running = Run.objects.running()[:_MOST_COUNTED].count()
    return min(max(found.in_flight, running), found.slots)


def _find_running() -> tuple[list[RunningRun], bool]:
    rows = Run.objects.running().select_related("flow", "version").defer(*_BARE).order_by("-pk")[: MOST_RUNS + 1]
    found = [
        RunningRun(run, run_state(run), round(100 * run.steps_passed / run.step_count) if run.step_count else 0)
        for run in rows
    ]
    return found[:MOST_RUNS], len(found) > MOST_RUNS


def _find_failed() -> list[FailedRun]:
    """The newest runs that failed or ended with an error, by their numbers."""
    rows = Run.objects.select_related("flow", "version").defer(*_BARE).order_by("-pk")
    # One status at a time: both together are in no order of an index.
    found = [run for status in (RunStatus.FAILED, RunStatus.ERRORED) for run in rows.filter(status=status)[:MOST_RUNS]]
    newest = sorted(found, key=lambda run: -run.pk)[:MOST_RUNS]
    return [_explain_failure(run) for run in newest]


def _explain_failure(run: Run) -> FailedRun:
    sentence = show_invisible(run.end_sentence) or str(run.get_end_reason_display())
    if run.blocking_step is None or run.blocking_attempt is None:
        return FailedRun(run, "", sentence, "")
    anchor = f"s{run.blocking_step}a{run.blocking_attempt}"
    # The planner begins its sentences with the step: that is what the reader will want to click.
    opening = re.match(rf"Step {run.blocking_step} “[^”]*”", sentence)
    if opening:
        return FailedRun(run, opening[0], sentence[opening.end() :], anchor)
    return FailedRun(run, f"Step {run.blocking_step}, attempt {run.blocking_attempt}", f": {sentence}", anchor)
