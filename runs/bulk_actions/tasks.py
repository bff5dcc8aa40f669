"""What queue messages about bulk actions name."""

from __future__ import annotations

from datetime import timedelta

from runs.bulk_actions.working import pass_on, work_on
from runs.models import BulkAction

PATIENCE = 1.0
"""Seconds of one message. One worker process of a host is left for sweeps, and these messages share it."""
SILENCE = timedelta(seconds=30)
"""An action that nobody has worked on for so long has lost its message."""


def go_on(action_id: int, turn: int) -> str:
    """Work on an action for a moment. Gives a sentence for the queue's own log."""
    if not BulkAction.objects.filter(pk=action_id).exists():
        return f"There is no bulk action {action_id}."
    work_on(action_id=action_id, turn=turn, patience=PATIENCE)
    return f"Worked on bulk action {action_id}."


def go_on_with_all() -> int:
    """Send new messages for actions that have lost theirs; gives their number. The queue's schedule runs it."""
    lost = list(BulkAction.objects.silent(SILENCE).values_list("pk", "turn"))
    for action_id, turn in lost:
        pass_on(action_id=action_id, turn=turn)
    return len(lost)
