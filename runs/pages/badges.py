"""Word, icon and tone of every state and severity, so that none is ever shown by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.models import RunStatus


@dataclass(frozen=True, slots=True)
class Badge:
    """How one state looks. ``icon`` is the name of a solid heroicon, ``tone`` the suffix of a CSS class."""

    word: str
    icon: str
    tone: str
    sign: str = ""
    """One character for charts, where there is no room for an icon."""


STATES: Mapping[str, Badge] = {
    "queued": Badge("Queued", "clock", "quiet"),
    "waiting": Badge("Not begun", "ellipsis-horizontal-circle", "quiet"),
    "running": Badge("Running", "arrow-path", "running", "…"),
    "cancelling": Badge("Cancelling", "minus-circle", "quiet"),
    "retrying": Badge("Waiting to retry", "clock", "running"),
    "succeeded": Badge("Succeeded", "check-circle", "passed"),
    "passed": Badge("Passed", "check-circle", "passed", "✓"),
    "accepted": Badge("Accepted", "check-circle", "medium", "✓"),
    "failed": Badge("Failed", "x-circle", "failed", "✗"),
    "invalid": Badge("Invalid output", "no-symbol", "failed", "✗"),
    "errored": Badge("Errored", "bolt-slash", "errored", "!"),
    "interrupted": Badge("Interrupted", "pause-circle", "quiet", "–"),
    "cancelled": Badge("Cancelled", "minus-circle", "quiet", "–"),
    "working": Badge("Working", "signal", "passed"),
    "stopping": Badge("Stopping", "stop-circle", "quiet"),
    "silent": Badge("Silent", "signal-slash", "errored"),
}
"""Statuses of runs and steps, outcomes of attempts and states of workers; their words don't clash."""

SEVERITIES: Mapping[str, Badge] = {
    "critical": Badge("Critical", "x-circle", "critical"),
    "high": Badge("High", "exclamation-triangle", "high"),
    "medium": Badge("Medium", "exclamation-circle", "medium"),
    "low": Badge("Low", "information-circle", "low"),
}
"""Severities of issues, the most severe first: the order in which pages list them."""

LIFECYCLE: Mapping[str, Badge] = {
    "introduced": Badge("New here", "plus-circle", "quiet"),
    "persisted": Badge("Persisted", "arrow-right-circle", "quiet"),
    "returned": Badge("Returned", "arrow-uturn-left", "errored"),
    "fixed": Badge("Fixed", "check-circle", "passed"),
    "remains": Badge("Still there", "arrow-long-right", "quiet"),
    # In another run:
    "new": Badge("New", "plus-circle", "failed"),
    "unchecked": Badge("Not checked in the newer run", "question-mark-circle", "quiet"),
    # In a list of issues, with words of its own:
    "kept": Badge("", "x-circle", "failed"),
    "unknown": Badge("", "question-mark-circle", "quiet"),
    "all": Badge("Issues", "information-circle", "quiet"),
}
"""What becomes of issues from attempt to attempt, or from one run to another."""

CHECKS: Mapping[str, Badge] = {
    "warned": Badge("Warned", "exclamation-triangle", "errored"),
    "error": Badge("Could not be evaluated", "bolt-slash", "errored"),
    "unreached": Badge("Not reached", "minus-circle", "quiet"),
}
"""States of checks, beside those that attempts have, too."""

IssueCounts = tuple[tuple[Badge, int], ...]
"""Numbers of issues by the badge of their severity, the most severe first, without zeros."""


def list_counts(counts: Mapping[str, int]) -> IssueCounts:
    """Numbers of issues by severity with their badges."""
    return tuple((badge, counts[name]) for name, badge in SEVERITIES.items() if counts.get(name))


def count_run_issues(run: Any) -> IssueCounts:
    """Issues of all attempts of a run by severity."""
    return list_counts({name: getattr(run, f"issues_{name}") for name in SEVERITIES})


def find_run_state(run: Any) -> str:
    """The status of a run as pages show it: one that is being cancelled says so."""
    return "cancelling" if run.status == RunStatus.RUNNING and run.cancel_requested else str(run.status)
