"""Runs and their history: rows that the worker writes and pages read.

``run`` holds the Run, which is also the queue's truth; ``history`` what its attempts brought.
"""

from runs.models.history import Attempt, Issue, Step, TokenUsage
from runs.models.run import EndReason, Run, RunStatus

__all__ = ["Attempt", "EndReason", "Issue", "Run", "RunStatus", "Step", "TokenUsage"]
