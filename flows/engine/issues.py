"""Issues: what an audit found in one attempt's output."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

LONGEST_CODE = 200
"""Characters."""


class Severity(StrEnum):
    """How much an issue matters: low < medium < high < critical.

    The members are strings, but compare by rank, and only with one another.
    """

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        """1, 2, 4, 8 for low to critical: the unit of weighted thresholds."""
        return _WEIGHTS[self]

    def __lt__(self, other: str) -> bool:
        return self.weight < _weigh(other)

    def __le__(self, other: str) -> bool:
        return self.weight <= _weigh(other)

    def __gt__(self, other: str) -> bool:
        return self.weight > _weigh(other)

    def __ge__(self, other: str) -> bool:
        return self.weight >= _weigh(other)


_WEIGHTS = {severity: 1 << rank for rank, severity in enumerate(Severity)}


def _weigh(other: str) -> int:
    if not isinstance(other, Severity):
        raise TypeError(f"A Severity can only be compared with another Severity, not with {other!r}.")
    return other.weight


class Issue(BaseModel):
    """One finding in one attempt's output.

    Fields that an audit adds beyond those below are kept as they are, in ``added_fields``,
    and travel with the issue into rows and JSON.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    code: str = Field(min_length=1, max_length=LONGEST_CODE)
    """Stable and machine-readable: what kind of finding this is (``hex_format``)."""
    severity: Severity
    description: str
    """One or two sentences for people and for the model that tries again."""
    audit: str = Field(default="", max_length=200)
    """The name of the audit that raised it; empty where the engine itself did."""
    path: str | None = None
    """JSON pointer (RFC 6901) into the output, where one place is to blame."""
    context: dict[str, Any] = Field(default_factory=dict)
    suggestions: tuple[str, ...] = ()

    @property
    def added_fields(self) -> dict[str, Any]:
        """The fields that an audit added to the standard ones."""
        return dict(self.model_extra or {})

    @property
    def fingerprint(self) -> tuple[str, str, str | None]:
        """What makes this the same finding in another attempt: audit, code and path."""
        return (self.audit, self.code, self.path)


def filter_issues(issues: Iterable[Issue], minimum: Severity) -> tuple[Issue, ...]:
    """The issues whose severity is ``minimum`` or above, in their order."""
    return tuple(issue for issue in issues if issue.severity >= minimum)


def count_by_severity(issues: Iterable[Issue]) -> dict[Severity, int]:
    """How many issues there are of each severity; every severity is a key."""
    counts = dict.fromkeys(Severity, 0)
    for issue in issues:
        counts[issue.severity] += 1
    return counts
