"""Calls that wait at the gate, first come first."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from flows.engine.call_gate import Closed, Permit
from runs.limits.ledger import Block
from runs.limits.rules import Resource

LEAST_DELAY = timedelta(seconds=0.5)
"""After which a run that was turned away may be back at the earliest."""


@dataclass(frozen=True, slots=True)
class Blockade:
    """What the ledger has said to a call that it granted no permit, and until when that holds."""

    block: Block
    until: datetime

    @classmethod
    def begin(cls, block: Block, now: datetime) -> Blockade:
        """The blockade that begins now."""
        return cls(block, now + timedelta(seconds=block.delay))

    @property
    def is_certain(self) -> bool:
        """Whether it is known to last; when a call in flight ends, nobody knows."""
        return self.block.resource is not Resource.CALLS

    @property
    def sentence(self) -> str:
        """What a call waits for that doesn't come through, for people."""
        return self.block.limit.describe(self.block.resource)

    def find_delay(self, now: datetime) -> timedelta:
        """For how long a call is sent away that doesn't wait for the end of it."""
        return max(self.until - now, LEAST_DELAY)


@dataclass(slots=True, eq=False)
class WaitingCall:
    """One call that waits."""

    model: str
    tokens: int
    deadline: datetime
    future: asyncio.Future[Permit | Closed]
    blockade: Blockade | None = None

    def find_turn(self) -> datetime | None:
        """When its turn may come, None if nobody knows."""
        return self.blockade.until if self.blockade is not None and self.blockade.is_certain else None

    def is_hopeless(self, now: datetime) -> bool:
        """Whether it has waited long enough, or will certainly have done so when its turn comes."""
        turn = self.find_turn()
        return now >= self.deadline or (turn is not None and turn > self.deadline)


class WaitingCalls:
    """The queue of one drain."""

    def __init__(self) -> None:
        self._calls: deque[WaitingCall] = deque()
        self._counts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[WaitingCall]:
        return iter(self._calls)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def count(self, model: str) -> int:
        """How many calls of ``model`` wait. Safe from any thread."""
        return self._counts[model]

    def append(self, model: str, tokens: int, deadline: datetime) -> WaitingCall:
        """A call comes."""
        call = WaitingCall(model, tokens, deadline, asyncio.get_running_loop().create_future())
        self._calls.append(call)
        self._counts[model] += 1
        return call

    def remove(self, call: WaitingCall) -> None:
        """A call goes, unless it is gone."""
        with contextlib.suppress(ValueError):
            self._calls.remove(call)
            self._counts[call.model] -= 1

    def choose(self, most: int) -> list[WaitingCall]:
        """The first of them, ``most`` of each model."""
        taken: Counter[str] = Counter()
        chosen = []
        for call in self._calls:
            if taken[call.model] < most:
                taken[call.model] += 1
                chosen.append(call)
        return chosen
