"""What becomes of an issue from attempt to attempt of its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runs import models


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How an issue stands: ``introduced``, ``persisted``, ``fixed`` (by the next attempt) or ``returned``."""

    state: str


@dataclass(frozen=True, slots=True)
class StepIssues:
    """The issues of a step, traced over its attempts."""

    lifecycles: Mapping[int, Lifecycle] = field(default_factory=dict)
    """By the key of the issue's row."""
    summary: str = ""
    """One sentence for the head of the step: “4 issues: 3 fixed by attempt 2, 1 persisted”."""


def trace_issues(attempts: Sequence[tuple[models.Attempt, Sequence[models.Issue]]]) -> StepIssues:
    """Trace the issues of the attempts of one step, in their order."""
    return StepIssues()
