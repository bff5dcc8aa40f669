"""Word, icon and tone of every state and severity, so that none is ever told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
"""Severities of issues, the gravest first: the order in which pages list them."""
