"""Runs and their history: rows that the worker writes and pages read.

``run`` holds the Run, which is also the queue's truth; ``history`` what its attempts brought; ``worker`` who is at
work; ``spending`` what flows with a budget have used; ``limit`` what the provider may be asked for.
"""

from runs.models.history import Attempt, Issue, Step, TokenUsage
from runs.models.limit import LimitLedger, RateLimit
from runs.models.run import EndReason, Priority, Run, RunStatus
from runs.models.spending import FlowSpending
from runs.models.worker import Worker

__all__ = [
    "Attempt",
    "EndReason",
    "FlowSpending",
    "Issue",
    "LimitLedger",
    "Priority",
    "RateLimit",
    "Run",
    "RunStatus",
    "Step",
    "TokenUsage",
    "Worker",
]
