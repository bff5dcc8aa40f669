"""What the trail is told of history that was taken away."""

from __future__ import annotations

from contextlib import nullcontext

from runs.retention.policy import Part
from runs.retention.purging import Purged, Task
from runs.trail.acting import TOOLFLOW, acting_as
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def tell_of_purge(task: Task, purged: Purged, *, by_worker: bool, archive: str = "") -> None:
    """Leave an entry with the flow, until which end its runs went, and how many; none where none went.

    ``archive`` is the name of the file that they were written to before.
    """
    if not purged.runs:
        return
    details = {
        "runs": purged.runs,
        "attempts": purged.attempts,
        "ended_before": task.ended_before.isoformat(timespec="seconds"),
        **({"only": "outputs"} if task.part is Part.OUTPUTS else {}),
        **({"archive": archive} if archive else {}),
    }
    with acting_as(TOOLFLOW) if by_worker else nullcontext():
        leave_trail(action=TrailAction.DATA_DELETED, about=task.flow, details=details)
