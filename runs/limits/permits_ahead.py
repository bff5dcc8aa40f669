"""Permits that a drain has been given before any call waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

PERIOD = timedelta(seconds=0.25)
"""How long the permits ahead are to last, and how often is counted how many that is."""
MOST_AHEAD = 50
"""Permits ahead of one model."""


class PermitsAhead:
    """A few permits of each model that is asked often; none of one that is asked now and then."""

    def __init__(self) -> None:
        self._tokens: dict[str, list[int]] = {}
        self._uses: Counter[str] = Counter()
        self._targets: dict[str, float] = {}
        self._counted_at: datetime | None = None

    def __bool__(self) -> bool:
        return any(self._tokens.values())

    def count(self, model: str) -> int:
        """How many there are. Safe from any thread."""
        return len(self._tokens.get(model, ()))

    def counts(self) -> Counter[str]:
        """How many there are of each model."""
        return Counter({model: len(tokens) for model, tokens in self._tokens.items()})

    def take(self, model: str) -> int | None:
        """Take one; gives the tokens that are charged for it, None if there is none."""
        tokens = self._tokens.get(model)
        return tokens.pop() if tokens else None

    def add(self, model: str, tokens: int) -> None:
        """Add one, for which ``tokens`` are charged."""
        self._tokens.setdefault(model, []).append(tokens)

    def note_use(self, model: str) -> None:
        """A call of ``model`` begins, with a permit from here or not."""
        self._uses[model] += 1

    def note_time(self, now: datetime) -> None:
        """See how often each model is asked; to be called once in a period, or more often."""
        periods = 1.0 if self._counted_at is None else (now - self._counted_at) / PERIOD
        if periods < 1:
            return
        self._counted_at = now
        for model in {*self._targets, *self._uses}:
            # A running mean, so that one burst alone leads to little.
            target = (self._targets.get(model, 0.0) + self._uses[model] / periods) / 2
            if target < 1 and not self._uses[model]:
                self._targets.pop(model, None)
            else:
                self._targets[model] = min(target, MOST_AHEAD)
        self._uses.clear()

    def find_missing(self) -> dict[str, int]:
        """How many more are wanted, by model."""
        missing = {model: int(target) - self.count(model) for model, target in self._targets.items()}
        return {model: count for model, count in missing.items() if count > 0}

    def is_low(self, model: str) -> bool:
        """Whether more should be asked for now."""
        return self.count(model) * 2 < int(self._targets.get(model, 0))

    def drop_surplus(self) -> Iterator[tuple[str, int]]:
        """Take out what is more than wanted: models, with the tokens charged for each permit."""
        for model, tokens in self._tokens.items():
            while len(tokens) > int(self._targets.get(model, 0)):
                yield model, tokens.pop()

    def drop_all(self) -> Iterator[tuple[str, int]]:
        """Take out all."""
        for model, tokens in self._tokens.items():
            while tokens:
                yield model, tokens.pop()
