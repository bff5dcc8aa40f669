"""What one drain holds of the limits, what it knows of them, and what the ledger is to hear from it. No I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from flows.engine.usage import TokenUsage
from runs.limits.estimates import Estimates
from runs.limits.ledger import Answer, Left, Order, Want
from runs.limits.permits_ahead import PermitsAhead
from runs.limits.rules import Rules

EXPECTATION = timedelta(seconds=2)
"""How long a run that was claimed is awaited at the gate."""


class Account:
    """The books of one drain."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.rules = Rules()
        self.ahead = PermitsAhead()
        self.owners: tuple[str, ...] = (owner,)
        """All drains that the ledger knows."""
        self.asked_at: datetime | None = None
        """When the ledger was asked last."""
        self._left: Mapping[int, Left] = {}
        self._estimates = Estimates()
        self._active: Counter[str] = Counter()
        self._expected: dict[str, deque[datetime]] = {}
        self._tokens: Counter[str] = Counter()
        self._unused: Counter[str] = Counter()
        self._freed: Counter[str] = Counter()

    @property
    def has_news(self) -> bool:
        """Whether the ledger should hear of something before long."""
        return bool(self.ahead or self._tokens or self._unused or self._freed)

    @property
    def holds_calls(self) -> bool:
        """Whether calls are under way whose number is limited."""
        return any(count and self.rules.limit_calls(model) for model, count in self._active.items())

    def estimate(self, request: Mapping[str, Any]) -> int:
        """Tokens to charge for a call before it is made; 0 where they are not limited."""
        return self._estimates.estimate(request) if self.rules.limit_tokens(request["model"]) else 0

    def take_ahead(self, request: Mapping[str, Any]) -> int | None:
        """Use a permit granted ahead; gives the tokens that are charged for the call, None if there is no permit."""
        model = request["model"]
        charged = self.ahead.take(model)
        if charged is None:
            return None
        needed = self.estimate(request)
        if needed != charged:
            self._tokens[model] += needed - charged
        return needed

    def begin_call(self, model: str) -> None:
        """A call begins with a permit."""
        self._active[model] += 1
        self.ahead.note_use(model)

    def end_call(self, model: str, charged: int, usage: TokenUsage | None) -> None:
        """A call ended; ``usage`` is what it used, None if that is not known: then the estimate stands."""
        self._active[model] -= 1
        if usage is not None:
            if self.rules.limit_tokens(model):
                self._tokens[model] += usage.total - charged
            if usage.total:
                self._estimates.learn(model, usage)
        if self.rules.limit_calls(model):
            self._freed[model] += 1

    def drop_call(self, model: str, charged: int) -> None:
        """A call that had begun is not made after all."""
        self._active[model] -= 1
        self.give_back([(model, charged)])

    def give_back(self, permits: Iterable[tuple[str, int]]) -> None:
        """Permits are not needed: models, with the tokens charged for each."""
        for model, tokens in permits:
            self._unused[model] += 1
            self._tokens[model] -= tokens

    def expect_call(self, model: str, now: datetime) -> None:
        """A run will soon call ``model``."""
        expected = self._expected.setdefault(model, deque())
        while expected and expected[0] <= now:
            expected.popleft()
        expected.append(now + EXPECTATION)

    def meet_expected(self, model: str) -> None:
        """A call of ``model`` has reached the gate."""
        if expected := self._expected.get(model):
            expected.popleft()

    def make_order(self, wants: Sequence[Want], *, gone: Sequence[str], now: datetime) -> Order:
        """What the ledger is told, and asked: the wants given, and then permits ahead."""
        self.ahead.note_time(now)
        self.give_back(self.ahead.drop_surplus())
        ahead = [
            Want(model, self._estimates.mean(model) if self.rules.limit_tokens(model) else 0, is_ahead=True)
            for model, count in self.ahead.find_missing().items()
            for _ in range(count)
        ]
        # What is counted in the sum is what there is more than none of.
        held = self._active + self.ahead.counts()
        return self._tell(Order(self.owner, held, dict(self._tokens), dict(self._unused), [*wants, *ahead], gone))

    def make_last_order(self) -> Order:
        """What the ledger is told when the drain ends."""
        self.give_back(self.ahead.drop_all())
        return self._tell(Order(self.owner, {}, dict(self._tokens), dict(self._unused), leaves=True))

    def _tell(self, order: Order) -> Order:
        for told in (self._tokens, self._unused, self._freed):
            told.clear()
        return order

    def put_back(self, order: Order) -> None:
        """An order did not arrive: it is to be told again."""
        self._tokens.update(order.tokens)
        self._unused.update(order.unused)

    def take_in(self, answer: Answer) -> None:
        """See what is left."""
        self._left = answer.left
        self.owners = answer.owners

    def find_room(self, model: str, *, waiting: int, now: datetime) -> int | None:
        """How many calls of ``model`` could begin now beside those that wait; None if nothing limits them.

        What is left is divided by the number of drains. Safe from any thread.
        """
        limits = self.rules.find(model)
        if not limits:
            return None
        elapsed = (now - self.asked_at).total_seconds() if self.asked_at else 0.0
        rooms: list[float] = []
        for limit in limits:
            left = self._left.get(limit.id)
            if left is None:
                return 0
            if left.calls is not None:
                rooms.append(left.calls + self._freed[model])
            if left.requests is not None and (bucket := limit.requests) is not None:
                rooms.append(int(bucket.fill(left.requests, elapsed)))
            if left.tokens is not None and (bucket := limit.tokens) is not None:
                rooms.append(bucket.fill(left.tokens, elapsed) / self._estimates.mean(model))
        share = ceil(min(rooms) / max(1, len(self.owners)))
        # Copied in one go: the event loop may change it meanwhile.
        expected = sum(until > now for until in tuple(self._expected.get(model, ())))
        return max(0, share + self.ahead.count(model) - waiting - expected)
