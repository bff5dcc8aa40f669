"""A process that asks for permits as fast as it can: ``python -m tests.runs.limits.hammer``.

It prints how many it was granted, and the most calls of all such processes that were under way at the same time.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import struct
import sys
from pathlib import Path
from typing import Any

import django

COUNTER = struct.Struct("ii")
"""Calls under way now, and the most there were."""


class CallCounter:
    """Counts calls under way over all processes, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, count: int) -> None:
        """So many calls begin, or end if it is negative."""
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            now, most = COUNTER.unpack(file.read(COUNTER.size))
            file.seek(0)
            file.write(COUNTER.pack(now + count, max(most, now + count)))

    @classmethod
    def create(cls, path: Path) -> CallCounter:
        """A counter that stands at none."""
        path.write_bytes(COUNTER.pack(0, 0))
        return cls(path)

    def read_most(self) -> int:
        """The most calls that were ever under way at the same time."""
        return int(COUNTER.unpack(self._path.read_bytes())[1])


async def hammer(
    *, owner: str, orders: int, counter: CallCounter, limits: list[list[Any]], redis: str, key: str
) -> int:
    """Have so many orders settled, in Redis under ``key`` or in the database; gives the permits that were granted."""
    from runs.limits.ledger import Order, Want
    from runs.limits.rules import Limit, Rules
    from runs.limits.stores import DatabaseStore, RedisStore

    rules = Rules(Limit(*limit) for limit in limits)
    store = RedisStore(read_redis_options(redis), key=key) if redis else DatabaseStore(asyncio.to_thread)
    held = granted = 0
    for _ in range(orders):
        ended = random.randint(0, held)
        counter.add(-ended)
        held -= ended
        answer = await store.settle(Order(owner, {"m": held}, wants=[Want("m", 10)] * 3), rules)
        begun = sum(block is None for block in answer.results)
        counter.add(begun)
        held += begun
        granted += begun
    counter.add(-held)
    await store.settle(Order(owner, leaves=True), rules)
    await store.close()
    return granted


def read_redis_options(url: str) -> dict[str, Any]:
    """What a client of the server at ``url`` is made with."""
    from redis.connection import parse_url

    return dict(parse_url(url))  # type: ignore[no-untyped-call]  # the package types it only in part


if __name__ == "__main__":
    django.setup()
    settings = json.loads(sys.argv[1])
    settings["counter"] = CallCounter(Path(settings["counter"]))
    sys.stdout.write(f"{asyncio.run(hammer(owner=str(os.getpid()), **settings))}\n")
