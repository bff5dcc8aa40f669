"""Hearing of queued runs at once, where there is a Redis to hear it from."""

from __future__ import annotations

import asyncio
import logging

from django.conf import settings

from runs.queue import name_channel

logger = logging.getLogger(__name__)

RETRY_PAUSE = 5.0
"""Seconds between tries to reach Redis; meanwhile the drain looks for queued runs as if there were none."""


async def listen(news: asyncio.Event) -> None:
    """Set ``news`` whenever a run is queued, until cancelled. Returns at once where the database is the broker."""
    address = settings.Q_CLUSTER.get("redis")
    if address is None:
        return
    # Only an installation on several hosts has this package.
    from redis import RedisError
    from redis.asyncio import Redis

    is_told = False
    while True:
        client = Redis.from_url(address) if isinstance(address, str) else Redis(**address)
        try:
            async with client, client.pubsub() as channel:
                await channel.subscribe(name_channel())
                is_told = False
                async for message in channel.listen():
                    if message["type"] == "message":
                        news.set()
        except (RedisError, OSError) as error:
            if not is_told:
                # The queue's own processes warn of it; each drain would do so again.
                logger.info("Redis can't be reached; queued runs are found by looking for them: %s", error)
                is_told = True
        await asyncio.sleep(RETRY_PAUSE)
