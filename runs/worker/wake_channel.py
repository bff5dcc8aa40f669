"""Hearing of queued runs at once, where there is a Redis to hear it from."""

from __future__ import annotations

import asyncio
import logging

from django.conf import settings

from runs.queue import name_channel

logger = logging.getLogger(__name__)

RETRY_PAUSE = 5.0
"""Seconds between tries to reach Redis; meanwhile the drain looks for queued runs as if there were none."""


class WakeChannel:
    """Sets ``news`` whenever a run is queued."""

    def __init__(self, news: asyncio.Event) -> None:
        self.is_open = False
        """Whether queued runs are heard of now."""
        self._news = news

    async def listen(self) -> None:
        """Listen until cancelled. Returns at once where the database is the broker."""
        address = settings.Q_CLUSTER.get("redis")
        if address is None:
            return
        # Only an installation on several hosts has this package.
        from redis import RedisError
        from redis.asyncio import Redis

        while True:
            client = Redis.from_url(address) if isinstance(address, str) else Redis(**address)
            try:
                async with client, client.pubsub() as channel:
                    await channel.subscribe(name_channel())
                    async for _ in channel.listen():
                        # The first message says that the subscription holds.
                        self.is_open = True
                        self._news.set()
            except (RedisError, OSError) as error:
                # The queue's own processes warn of it; each drain would do so again.
                logger.info("Redis can't be reached; queued runs are found by looking for them: %s", error)
            self.is_open = False
            await asyncio.sleep(RETRY_PAUSE)
