"""Where the ledger is kept: in the database, or in Redis with the database to fall back on.

Each store settles orders one after the other, in its own time: hosts' clocks don't matter.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from django.db import InterfaceError, OperationalError, transaction

from runs.limits.ledger import Answer, Ledger, Order
from runs.limits.rules import Rules
from runs.models import LimitLedger

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class Ask(Protocol):
    """Does a synchronous function on the drain's database thread."""

    def __call__(self, question: Callable[[], _Result], /) -> Awaitable[_Result]: ...


class StoreAwayError(Exception):
    """The ledger can't be reached now."""


class Store(Protocol):
    """Keeps the ledger of an installation."""

    async def settle(self, order: Order, rules: Rules) -> Answer:
        """Let the ledger answer an order. Raises ``StoreAwayError`` if that can't be now."""
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


class DatabaseStore:
    """The ledger as one row: whoever has locked it may settle an order."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def settle(self, order: Order, rules: Rules) -> Answer:
        """One short transaction on the database thread."""
        try:
            return await self._ask(lambda: settle_in_database(order, rules))
        except (OperationalError, InterfaceError) as error:
            raise StoreAwayError(str(error).strip()) from error

    async def close(self) -> None:
        """Do nothing: the connection is the thread's."""


def settle_in_database(order: Order, rules: Rules) -> Answer:
    """Let the ledger in the database answer an order. Raises the database's errors; then nothing happened."""
    with transaction.atomic():
        state, now = LimitLedger.objects.read_locked()
        ledger = Ledger(state)
        answer = ledger.settle(order, rules, now.timestamp())
        LimitLedger.objects.write(ledger.to_document())
    return answer


SWAP = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
"""Writes a ledger if nobody has written another one since it was read."""

LEDGER_LIFE = 3_600_000
"""Milliseconds after which Redis forgets a ledger that nobody uses."""
MOST_TRIES = 100
"""Reads of the ledger for one order, if others write each time before it does."""
LONGEST_PAUSE = 0.01
"""Seconds between two of them."""


class RedisStore:
    """The ledger as one value: settled here, and written if it is still the one that was read."""

    def __init__(self, options: Mapping[str, Any], *, key: str) -> None:
        """``options`` are those of the client; ``key`` is where the ledger lies."""
        self._options = dict(options)
        self._key = key
        self._client: Redis | None = None

    async def settle(self, order: Order, rules: Rules) -> Answer:
        """Read, settle and write, again if another drain was faster."""
        from redis.exceptions import RedisError

        try:
            for _ in range(MOST_TRIES):
                answer = await self._try(order, rules)
                if answer is not None:
                    return answer
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))  # noqa: S311  # keeps drains apart, guards nothing
        except (RedisError, OSError) as error:
            raise StoreAwayError(str(error).strip()) from error
        raise StoreAwayError(f"others were faster {MOST_TRIES} times")

    async def _try(self, order: Order, rules: Rules) -> Answer | None:
        client = self._client = self._client or _connect(self._options)
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.get(self._key)
            pipeline.time()
            found, (seconds, microseconds) = await pipeline.execute()
        text = (found or b"").decode()
        ledger = Ledger(_read(text))
        answer = ledger.settle(order, rules, seconds + microseconds / 1_000_000)
        written = json.dumps(ledger.to_document(), separators=(",", ":"))
        is_swapped = await client.eval(SWAP, 1, self._key, text, written, str(LEDGER_LIFE))
        return answer if is_swapped else None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _connect(options: Mapping[str, Any]) -> Redis:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # Runs wait meanwhile, and there is a store to fall back on. One more try mends a connection that went stale.
    quick = {"socket_connect_timeout": 1, "socket_timeout": 1, "retry": Retry(NoBackoff(), 1)}
    return Redis(**{**options, **quick})


def _read(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text) if text else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


class FallbackStore:
    """The first store while it is there, else the second; which is shared as well, so that limits go on to hold."""

    PAUSE = 15.0
    """Seconds until the first store is tried again."""

    def __init__(self, first: Store, second: Store) -> None:
        self._first = first
        self._second = second
        self._try_again_at: float | None = None

    async def settle(self, order: Order, rules: Rules) -> Answer:
        """Ask the first store, and the second if that one is away."""
        if self._try_again_at is None or time.monotonic() >= self._try_again_at:
            try:
                answer = await self._first.settle(order, rules)
            except StoreAwayError as error:
                if self._try_again_at is None:
                    logger.warning("Redis can't be reached; until it can, limits are kept in the database: %s", error)
                self._try_again_at = time.monotonic() + self.PAUSE
            else:
                if self._try_again_at is not None:
                    logger.warning("The limits are kept in Redis again.")
                    self._try_again_at = None
                return answer
        return await self._second.settle(order, rules)

    async def close(self) -> None:
        """Close both."""
        await self._first.close()
        await self._second.close()
