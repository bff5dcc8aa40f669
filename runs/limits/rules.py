"""The limits that staff set, and which of them a call falls under."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runs.models import RateLimit

BURST_SECONDS = 2
"""Seconds' worth of a limit that may go at once after a quiet time."""


class Resource(Enum):
    """What a limit can be short of."""

    CALLS = "calls in flight"
    REQUESTS = "requests a minute"
    TOKENS = "tokens a minute"


@dataclass(frozen=True, slots=True)
class Bucket:
    """What may go at once, and how much is added each second until that is full again.

    What is in the bucket at the beginning of a minute and what is added in it make up the limit, so the rate in the
    long run is a thirtieth less than the limit.
    """

    size: int
    rate: float

    @classmethod
    def for_minute(cls, limit: int) -> Bucket:
        """The bucket of a limit for each minute."""
        size = max(1, limit * BURST_SECONDS // 60)
        return cls(size, (limit - size + 1) / 60)

    def fill(self, level: float, seconds: float) -> float:
        """Return the level after ``seconds``."""
        return min(self.size, level + seconds * self.rate)


@dataclass(frozen=True, slots=True)
class Limit:
    """One row of ``RateLimit``."""

    id: int
    model: str
    """A model, the beginning of models' names with ``*`` behind it, or nothing for all models."""
    calls_in_flight: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def covers(self, model: str) -> bool:
        """Whether calls of ``model`` count here."""
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return self.model in {"", model}

    @property
    def requests(self) -> Bucket | None:
        """The bucket of requests, None where they are not limited."""
        return None if self.requests_per_minute is None else Bucket.for_minute(self.requests_per_minute)

    @property
    def tokens(self) -> Bucket | None:
        """The bucket of tokens, None where they are not limited."""
        return None if self.tokens_per_minute is None else Bucket.for_minute(self.tokens_per_minute)

    def describe(self, resource: Resource) -> str:
        """The sentence shown at a run that waits for ``resource``."""
        count = {
            Resource.CALLS: self.calls_in_flight,
            Resource.REQUESTS: self.requests_per_minute,
            Resource.TOKENS: self.tokens_per_minute,
        }[resource]
        noun, _, rest = resource.value.partition(" ")
        noun = noun.removesuffix("s") if count == 1 else noun
        return f"Waits for the rate limit of {self.model or 'all models'}: {count:,} {noun} {rest}."


@dataclass(frozen=True, slots=True)
class Rules:
    """All limits of an installation."""

    limits: tuple[Limit, ...] = ()

    def find(self, model: str) -> list[Limit]:
        """The limits that calls of ``model`` fall under."""
        return [limit for limit in self.limits if limit.covers(model)]


def load_rules() -> Rules:
    """Read the limits that staff have set."""
    rows = RateLimit.objects.order_by("pk").values_list(
        "pk", "model", "calls_in_flight", "requests_per_minute", "tokens_per_minute"
    )
    return Rules(tuple(Limit(*row) for row in rows))
