"""What clients were answered during a load test, and how long it took."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

NO_ANSWER = 0
"""The status of a request that got none."""


class Ledger:
    """One note for each request."""

    def __init__(self) -> None:
        self.statuses: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """By kind of request."""
        self.errors: Counter[str] = Counter()
        """What was not as it should be, in words."""
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    def note(self, kind: str, status: int, seconds: float) -> None:
        """A request of that kind was answered with that status."""
        self.statuses[kind][status] += 1
        self._seconds[kind].append(seconds)

    def describe(self, name: str, kinds: Collection[str]) -> tuple[str, ...]:
        """A row of the table for requests of these kinds: how many, by status, and milliseconds."""
        statuses: Counter[int] = Counter()
        for kind in kinds:
            statuses += self.statuses[kind]
        said = ", ".join(f"{status or 'none'} × {count:,}" for status, count in sorted(statuses.items()))
        times = (f"{self.find_time(kinds, share):.0f}" for share in (0.5, 0.95, 0.99, 1))
        return (name, f"{statuses.total():,}", said, *times)

    def find_time(self, kinds: Collection[str], share: float) -> float:
        """The milliseconds within which this share of the requests was answered; 0 without requests."""
        return find_quantile([seconds for kind in kinds for seconds in self._seconds[kind]], share) * 1_000


def find_quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 without values."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
