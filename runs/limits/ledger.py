"""What is left of each limit, and who holds what of it: arithmetic alone, on a document that a store keeps.

All drains of an installation send their orders to the one ledger, one after the other. An order says how many calls
the drain holds in all, never how many more or fewer: one whose answer is lost is put right by the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runs.limits.rules import Bucket, Limit, Resource, Rules

FORMAT = 1
"""The number of this document's layout; another one is not read."""
HOLDING_LIFE = 30.0
"""Seconds after which the calls of a drain that is not heard of count no more."""
SILENCE = 20.0
"""Seconds without any order after which the store is taken to have been away: live drains send one more often."""
GRACE = 10.0
"""Seconds that drains have, after such a silence, to say that they are alive."""
CALL_DELAY = 1.0
"""Seconds after which somebody who waits for a call in flight to end may ask again; nobody knows when it does."""
MEMORY = 3600.0
"""Seconds that the level of a limit is kept which nobody knows any more."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Want:
    """A permit that is asked for."""

    model: str
    tokens: int
    is_ahead: bool = False
    """No call waits for it yet: it is given only out of plenty."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a drain tells and asks."""

    owner: str
    held: Mapping[str, int] = field(default_factory=dict)
    """How many permits it has, in use or ahead, by model."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens used beyond those charged, by model; negative if they were fewer."""
    unused: Mapping[str, int] = field(default_factory=dict)
    """Permits given back that no call was made with, by model."""
    wants: Sequence[Want] = ()
    """First come first."""
    gone: Collection[str] = ()
    """Owners that are known to be dead."""
    leaves: bool = False
    """It will not come again."""


@dataclass(frozen=True, slots=True)
class Block:
    """Why a permit can't be had: what ``limit`` is short of, and for how many seconds by the look of it."""

    limit: Limit
    resource: Resource
    delay: float


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of one limit; None where it doesn't limit."""

    calls: int | None
    requests: float | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the ledger says to an order."""

    results: tuple[Block | None, ...]
    """For each want None if it is granted."""
    left: Mapping[int, Left]
    """By limit, after this order."""
    owners: tuple[str, ...]
    """All drains that were heard of lately, the one that asked among them."""


@dataclass(slots=True)
class _Pool:
    """One limit while an order is worked on."""

    limit: Limit
    calls: int | None
    requests: float | None
    tokens: float | None
    requests_bucket: Bucket | None
    tokens_bucket: Bucket | None
    waiting: int = 0
    waiting_tokens: int = 0

    def find_block(self, want: Want) -> Block | None:
        """What keeps the want from being granted; None if nothing does."""
        blocks: list[Block] = []
        if self.calls is not None and self.calls < 1 + self._reserve(self.limit.calls_in_flight, want):
            blocks.append(Block(self.limit, Resource.CALLS, CALL_DELAY))
        if (bucket := self.requests_bucket) is not None and self.requests is not None:
            missing = 1 + self._reserve(bucket.size, want) - self.requests
            if missing > _ROUNDING:
                blocks.append(Block(self.limit, Resource.REQUESTS, (missing + self.waiting) / bucket.rate))
        if (bucket := self.tokens_bucket) is not None and self.tokens is not None:
            # Whatever its size, a call begins when anything is left, and what it takes too much is paid off before
            # the next: so none is too large ever to begin, and small ones don't overtake large ones.
            missing = self._reserve(bucket.size, want) - self.tokens
            if missing >= 0:
                blocks.append(Block(self.limit, Resource.TOKENS, (missing + self.waiting_tokens + 1) / bucket.rate))
        return max(blocks, key=lambda block: block.delay, default=None)

    @staticmethod
    def _reserve(size: int | None, want: Want) -> float:
        """What must stay for others: half if nobody waits for the permit yet."""
        return (size or 0) / 2 if want.is_ahead else 0

    def take(self, want: Want) -> None:
        self.calls = None if self.calls is None else self.calls - 1
        self.requests = None if self.requests is None else self.requests - 1
        self.tokens = None if self.tokens is None else self.tokens - want.tokens

    def queue(self, want: Want) -> None:
        self.waiting += 1
        self.waiting_tokens += want.tokens


class Ledger:
    """The state of all limits. Times are seconds since 1970 on the store's clock."""

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        """``document`` is what ``to_document`` gave; anything else is taken as a new ledger."""
        known = document if document and document.get("format") == FORMAT else {}
        self.as_of: float = known.get("as_of", 0.0)
        self._levels: dict[str, dict[str, float]] = {
            name: dict(level) for name, level in known.get("levels", {}).items()
        }
        self._owners: dict[str, dict[str, Any]] = {name: dict(entry) for name, entry in known.get("owners", {}).items()}

    def to_document(self) -> dict[str, Any]:
        """The state as plain data."""
        return {"format": FORMAT, "as_of": self.as_of, "levels": self._levels, "owners": self._owners}

    def settle(self, order: Order, rules: Rules, now: float) -> Answer:
        """Take in what an order tells, and grant what can be granted under ``rules``."""
        # A statement's time is that of its begin, which may lie before that of the order it waited for.
        now = max(now, self.as_of)
        self._forget(order, now)
        pools = {limit.id: self._open(limit, order.owner, now) for limit in rules.limits}
        held = dict.fromkeys(pools, 0)
        for model, count in order.held.items():
            for limit in rules.find(model):
                held[limit.id] += count
        for pool in pools.values():
            if pool.calls is not None:
                pool.calls -= held[pool.limit.id]
        self._correct(order, rules, pools)
        results = []
        for want in order.wants:
            limits = rules.find(want.model)
            block = _grant(want, [pools[limit.id] for limit in limits])
            results.append(block)
            if block is None:
                for limit in limits:
                    held[limit.id] += 1
        self._close(order, pools, held, now)
        left = {key: Left(pool.calls, pool.requests, pool.tokens) for key, pool in pools.items()}
        return Answer(tuple(results), left, tuple(self._owners))

    def _forget(self, order: Order, now: float) -> None:
        """Drop drains that are gone, and levels of limits that are."""
        if now - self.as_of > SILENCE:
            for entry in self._owners.values():
                entry["until"] = max(entry["until"], now + GRACE)
        self._owners = {
            name: entry for name, entry in self._owners.items() if entry["until"] > now and name not in order.gone
        }
        self._levels = {name: level for name, level in self._levels.items() if level["as_of"] > now - MEMORY}

    def _open(self, limit: Limit, owner: str, now: float) -> _Pool:
        """The pool of a limit with what was added since, and without what others hold."""
        level = self._levels.get(str(limit.id), {})
        elapsed = now - level.get("as_of", now)
        calls = limit.calls_in_flight
        if calls is not None:
            key = str(limit.id)
            calls -= sum(entry["held"].get(key, 0) for name, entry in self._owners.items() if name != owner)
        requests, tokens = limit.requests, limit.tokens
        return _Pool(
            limit,
            calls,
            _fill(requests, level.get("requests"), elapsed),
            _fill(tokens, level.get("tokens"), elapsed),
            requests,
            tokens,
        )

    def _correct(self, order: Order, rules: Rules, pools: Mapping[int, _Pool]) -> None:
        for model, count in order.unused.items():
            for limit in rules.find(model):
                pool = pools[limit.id]
                if pool.requests is not None and (bucket := pool.requests_bucket) is not None:
                    pool.requests = bucket.fill(pool.requests + count, 0)
        for model, count in order.tokens.items():
            for limit in rules.find(model):
                pool = pools[limit.id]
                if pool.tokens is not None and (bucket := pool.tokens_bucket) is not None:
                    pool.tokens = bucket.fill(pool.tokens - count, 0)

    def _close(self, order: Order, pools: Mapping[int, _Pool], held: Mapping[int, int], now: float) -> None:
        self.as_of = now
        for key, pool in pools.items():
            level = self._levels[str(key)] = {"as_of": now}
            if pool.requests is not None:
                level["requests"] = pool.requests
            if pool.tokens is not None:
                level["tokens"] = pool.tokens
        if order.leaves:
            self._owners.pop(order.owner, None)
        else:
            counted = {str(key): count for key, count in held.items() if count and pools[key].calls is not None}
            self._owners[order.owner] = {"until": now + HOLDING_LIFE, "held": counted}


def _fill(bucket: Bucket | None, level: float | None, seconds: float) -> float | None:
    """The level of a bucket after so many seconds; one that is new is full."""
    if bucket is None:
        return None
    return float(bucket.size) if level is None else bucket.fill(level, seconds)


def _grant(want: Want, pools: Sequence[_Pool]) -> Block | None:
    """Take the want out of all its pools, or of none."""
    blocks = [(block, pool) for pool in pools if (block := pool.find_block(want)) is not None]
    if not blocks:
        for pool in pools:
            pool.take(want)
        return None
    if not want.is_ahead:
        for _, pool in blocks:
            pool.queue(want)
    return max((block for block, _ in blocks), key=lambda block: block.delay)
