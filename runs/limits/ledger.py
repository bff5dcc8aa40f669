"""What is left of each limit and which process holds what: pure arithmetic on a document, and the row that keeps it.

A request states how many calls its process holds in all, never how many more or fewer, so that one whose answer is lost
is corrected by the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import transaction

from runs.limits.rules import Bucket, Limit, Resource, Rules
from runs.models import LimitLedger

HOLDING_SECONDS = 30.0
"""The calls of a process that sends no request for this long no longer count."""
OUTAGE_SECONDS = 20.0
"""Without a request from any process for this long, the database is taken to have been away."""
GRACE_SECONDS = 10.0
"""Time that processes have after an outage to send a request."""
CALL_DELAY_SECONDS = 1.0
"""Retry delay for a call that waits for another one to end, which may happen at any time."""
ROUNDING = 1e-6


class PermitRequest(NamedTuple):
    """One call that asks for a permit; ``tokens`` are charged for it."""

    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """What a process reports and asks for."""

    owner: str
    held: Mapping[str, int] = field(default_factory=dict)
    """Calls in flight, by model."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens used beyond those charged, by model; negative if they were fewer."""
    permits: Sequence[PermitRequest] = ()
    """First come, first served."""
    gone: Collection[str] = ()
    """Owners that are known to be dead."""
    leaves: bool = False
    """Whether this is the owner's last request."""


class Denial(NamedTuple):
    """Why a permit can't be had: ``limit`` is short of ``resource`` for an estimated ``delay``, in seconds."""

    limit: Limit
    resource: Resource
    delay: float


@dataclass(slots=True)
class Capacity:
    """What is left of one limit; None where it doesn't limit."""

    limit: Limit
    calls: int | None
    requests: float | None
    tokens: float | None
    _queued: int = field(default=0, compare=False)
    _queued_tokens: int = field(default=0, compare=False)

    def find_denial(self, permit: PermitRequest) -> Denial | None:
        """What keeps the permit from being granted, that with the longest delay; None if nothing does."""
        denials: list[Denial] = []
        if self.calls is not None and self.calls < 1:
            denials.append(Denial(self.limit, Resource.CALLS, CALL_DELAY_SECONDS))
        if self.requests is not None and (bucket := self.limit.requests) and 1 - self.requests > ROUNDING:
            delay = (1 - self.requests + self._queued) / bucket.rate
            denials.append(Denial(self.limit, Resource.REQUESTS, delay))
        # Whatever its size, a call begins when anything is left, and what it takes too much is paid off before the
        # next one: so none is too large ever to begin, and small ones don't overtake large ones.
        if self.tokens is not None and (bucket := self.limit.tokens) and self.tokens <= 0:
            delay = (1 - self.tokens + self._queued_tokens) / bucket.rate
            denials.append(Denial(self.limit, Resource.TOKENS, delay))
        if denials:
            self._queued += 1
            self._queued_tokens += permit.tokens
        return max(denials, key=lambda denial: denial.delay, default=None)

    def take(self, *, calls: int = 0, requests: int = 0, tokens: int = 0) -> None:
        """Subtract what is used; tokens below 0 are given back, up to what the limit lets go at once."""
        if self.calls is not None:
            self.calls -= calls
        if self.requests is not None:
            self.requests -= requests
        if self.tokens is not None and (bucket := self.limit.tokens):
            self.tokens = bucket.fill(self.tokens - tokens, 0)


class Settlement(NamedTuple):
    """The answer to a request."""

    denials: tuple[Denial | None, ...]
    """For each permit asked for, None if it is granted."""
    left: Mapping[int, Capacity]
    """By limit, after this request."""
    owners: tuple[str, ...]
    """All processes whose calls count, the one that asked included."""


class Ledger:
    """The state of all limits. Times are seconds since 1970 on the database's clock."""

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        """``document`` is what ``to_document`` gave; empty or None for a new ledger, whose buckets are full."""
        known = document or {}
        self.as_of: float = known.get("as_of", 0.0)
        self._levels: dict[str, dict[str, float]] = dict(known.get("levels", {}))
        self._owners: dict[str, dict[str, Any]] = {name: dict(entry) for name, entry in known.get("owners", {}).items()}

    def to_document(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"as_of": self.as_of, "levels": self._levels, "owners": self._owners}

    def settle(self, request: SettleRequest, rules: Rules, now: float) -> Settlement:
        """Take in what a process reports, and grant what can be granted under ``rules``."""
        # A transaction's time is that of its begin, which may lie before that of one it waited for.
        now = max(now, self.as_of)
        self._forget_owners(request, now)
        left = {limit.id: self._find_capacity(limit, request.owner, now) for limit in rules.limits}
        held = dict.fromkeys(left, 0)
        for model, count in request.held.items():
            for limit in rules.find(model):
                left[limit.id].take(calls=count)
                held[limit.id] += count
        for model, tokens in request.tokens.items():
            for limit in rules.find(model):
                left[limit.id].take(tokens=tokens)
        denials = []
        for permit in request.permits:
            limits = rules.find(permit.model)
            found = [denial for limit in limits if (denial := left[limit.id].find_denial(permit)) is not None]
            denials.append(max(found, key=lambda denial: denial.delay, default=None))
            if not found:
                for limit in limits:
                    left[limit.id].take(calls=1, requests=1, tokens=permit.tokens)
                    held[limit.id] += 1
        self._keep(request, left, held, now)
        return Settlement(tuple(denials), left, tuple(self._owners))

    def _forget_owners(self, request: SettleRequest, now: float) -> None:
        if now - self.as_of > OUTAGE_SECONDS:
            for entry in self._owners.values():
                entry["until"] = max(entry["until"], now + GRACE_SECONDS)
        self._owners = {
            name: entry for name, entry in self._owners.items() if entry["until"] > now and name not in request.gone
        }

    def _find_capacity(self, limit: Limit, owner: str, now: float) -> Capacity:
        """What a limit leaves to ``owner`` now: refilled since the last level, less what other owners hold."""
        level = self._levels.get(str(limit.id), {})
        elapsed = now - level.get("as_of", now)
        calls = limit.calls_in_flight
        if calls is not None:
            others = (entry for name, entry in self._owners.items() if name != owner)
            calls -= sum(entry["held"].get(str(limit.id), 0) for entry in others)
        requests = _fill(limit.requests, level.get("requests"), elapsed)
        return Capacity(limit, calls, requests, _fill(limit.tokens, level.get("tokens"), elapsed))

    def _keep(self, request: SettleRequest, left: Mapping[int, Capacity], held: Mapping[int, int], now: float) -> None:
        self.as_of = now
        for key, capacity in left.items():
            levels = {"as_of": now, "requests": capacity.requests, "tokens": capacity.tokens}
            self._levels[str(key)] = {name: level for name, level in levels.items() if level is not None}
        if request.leaves:
            self._owners.pop(request.owner, None)
        else:
            counted = {str(key): count for key, count in held.items() if count and left[key].calls is not None}
            self._owners[request.owner] = {"until": now + HOLDING_SECONDS, "held": counted}


def settle_in_database(request: SettleRequest, rules: Rules) -> Settlement:
    """Settle ``request`` in the ledger's row, which is locked meanwhile. Raises the database's errors."""
    with transaction.atomic():
        document, now = LimitLedger.objects.read_locked()
        ledger = Ledger(document)
        settlement = ledger.settle(request, rules, now.timestamp())
        LimitLedger.objects.write(ledger.to_document())
    return settlement


def _fill(bucket: Bucket | None, level: float | None, seconds: float) -> float | None:
    """The level of a bucket after ``seconds``; a new one is full."""
    if bucket is None:
        return None
    return float(bucket.size) if level is None else bucket.fill(level, seconds)
