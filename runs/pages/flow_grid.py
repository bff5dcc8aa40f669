"""The last runs of a flow as a grid: a row a step, a column a run, each cell with how the step came out.

Three queries whatever the flow's history, and one for definitions of versions that are not cached yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from flows.engine.history import COUNTED, Outcome
from flows.models import Flow, FlowVersion
from runs.formatting import format_cost, format_duration, format_number, format_plural
from runs.models import Attempt, Run, RunFacet, Step
from runs.models.history import FacetKind
from runs.pages.badges import STATES, find_run_state
from runs.pages.flow_version import load_specs

MAX_RUNS = 40
MAX_AUDITS_SHOWN = 4
BAR_HEIGHT = 40
"""Pixels of the longest run's bar."""
_COLUMNS = ("version", "status", "cancel_requested", "created_at", "started_at", "ended_at", "cost", "unpriced_count")
_KINDS = {"accepted": "accepted", "failed": "failed", "invalid": "failed", "errored": "errored"}


def load_grid(
    flow: Flow,
    versions: Mapping[int, FlowVersion],
    shown: FlowVersion | None,
    *,
    only: FlowVersion | None,
    now: datetime,
) -> dict[str, Any] | None:
    """The last runs of a flow, or of ``only`` one version; rows are the steps of ``shown``. None without any run.

    Runs come oldest first. A row has the number and the name of its step; the number is empty where the step is no
    longer there. ``versions`` are all of the flow, by their keys.
    """
    chosen = Run.objects.filter(version=only) if only else Run.objects.filter(flow=flow)
    runs = list(chosen.order_by("-created_at", "-pk").only(*_COLUMNS)[:MAX_RUNS])[::-1]
    if not runs:
        return None
    used = {run.version_id for run in runs} | ({shown.pk} if shown else set())
    specs = load_specs(versions[key] for key in used)
    steps, audits = _fetch_steps(runs), _fetch_audits(runs)
    # The steps of each version in their order; of one that can't be read those that its runs began.
    names = {
        key: {step.name: str(number) for number, step in enumerate(spec.steps, start=1)}
        for key, spec in specs.items()
        if spec
    }
    rows = dict(names.get(shown.pk, {})) if shown else {}
    for run in reversed(runs):
        for name in names.get(run.version_id) or steps.get(run.pk, {}):
            rows.setdefault(name, "")
    seconds = [_measure(run, now) for run in runs]
    longest = max(seconds) or 1.0
    columns = []
    for run, took in zip(runs, seconds, strict=True):
        found = steps.get(run.pk, {})
        own = names.get(run.version_id, found)
        height = max(took / longest * BAR_HEIGHT, 1.0) if took else 0.0
        fired = audits.get(run.pk, [])
        more = len(fired) - MAX_AUDITS_SHOWN
        columns.append(
            {
                "run": run,
                "state": STATES[find_run_state(run)],
                "version": f"v{versions[run.version_id].number}",
                "facts": (
                    format_duration(took if run.started_at else None),
                    format_cost(run.cost, run.unpriced_count),
                ),
                "notable": _describe_notable(found),
                "audits": ", ".join([*fired[:MAX_AUDITS_SHOWN], *([f"{more} more"] if more > 0 else [])]),
                "bar_y": format_number(BAR_HEIGHT - height),
                "bar_height": format_number(height),
                # Kind and sign of each step; the kind is empty where the version has no such step.
                "cells": [
                    _judge(*found[name]) if name in found else ("none" if name in own else "", "") for name in rows
                ],
            }
        )
    return {
        "rows": [(number, name) for name, number in rows.items()],
        "runs": columns,
        "longest": format_duration(longest),
    }


def _fetch_steps(runs: Sequence[Run]) -> Mapping[int, Mapping[str, tuple[int, str]]]:
    """Of each run and step by name: attempts with an output, and the state of the one that counts; empty: it runs."""
    rows = (
        Step.objects.filter(run__in=runs)
        .order_by()
        .annotate(
            tries=Count("attempts", filter=Q(attempts__outcome__in=[outcome.value for outcome in COUNTED])),
            state=Attempt.objects.build_deciding_state(),
        )
        .values_list("run", "name", "tries", "state")
    )
    found: dict[int, dict[str, tuple[int, str]]] = {}
    for run, name, tries, state in rows:
        found.setdefault(run, {})[name] = (tries, "interrupted" if state is None else state)
    return found


def _fetch_audits(runs: Sequence[Run]) -> Mapping[int, list[str]]:
    """The audits that fired in each run that is counted."""
    # Without other kinds and not by this one: databases would read all audits that ever fired off the index of kinds.
    others = [kind for kind in FacetKind if kind is not FacetKind.AUDIT]
    rows = RunFacet.objects.filter(run__in=runs).exclude(kind__in=others).order_by().values_list("run", "value")
    found: dict[int, list[str]] = {}
    for run, audit in sorted(rows):
        found.setdefault(run, []).append(audit)
    return found


def _measure(run: Run, now: datetime) -> float:
    """Seconds from the start of a run to its end, or to now."""
    if run.started_at is None:
        return 0.0
    return max(((run.ended_at or now) - run.started_at).total_seconds(), 0.0)


def _judge(tries: int, state: str) -> tuple[str, str]:
    """Kind and sign of a step in this state with that number of tries."""
    if state == Outcome.PASSED:
        return ("retried", str(tries - 1)) if tries > 1 else ("passed", "")
    if not state:
        return "running", STATES["running"].sign
    return _KINDS.get(state, "cut"), STATES[state].sign


def _describe_notable(found: Mapping[str, tuple[int, str]]) -> str:
    """The step that did not pass, or else the one that needed most attempts."""
    for name, (tries, outcome) in found.items():
        if outcome in (Outcome.FAILED, Outcome.INVALID, Outcome.ERRORED):
            # Attempts without an answer are not counted as tries.
            after = f" after {format_plural(tries, 'attempt')}" if tries else ""
            return f"{name} {STATES[outcome].word.lower()}{after}"
    name, (tries, _) = max(found.items(), key=lambda item: item[1][0], default=("", (0, "")))
    return f"{name} needed {format_plural(tries, 'attempt')}" if tries > 1 else ""
