"""What the trail is told of history that was taken away."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from runs.retention.policy import Part
from runs.retention.purging import Purged, Task
from runs.trail.acting import TOOLFLOW, acting_as
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


@dataclass(frozen=True, slots=True)
class PurgeTelling:
    """Leaves two entries of one purge with the flow, which say until which end its runs went; none where none went."""

    task: Task
    by_worker: bool

    def begin(self) -> None:
        """Say that something goes, in the transaction in which the first of it does: nothing goes untold."""
        self._leave({"begun": True})

    def end(self, purged: Purged) -> None:
        """Say how much it was."""
        if purged.has_begun:
            self._leave({"runs": purged.runs, "attempts": purged.attempts})

    def _leave(self, figures: Mapping[str, Any]) -> None:
        details = {
            **figures,
            "ended_before": self.task.ended_before.isoformat(timespec="seconds"),
            **({"only": "outputs"} if self.task.part is Part.OUTPUTS else {}),
        }
        with acting_as(TOOLFLOW) if self.by_worker else nullcontext():
            leave_trail(action=TrailAction.DATA_DELETED, about=self.task.flow, details=details)
