"""What processes remember for a moment, and what they share of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MEMORY = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}


def build_caches(redis: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The setting ``CACHES``. ``redis`` is how the queue reaches its Redis, with ``ssl`` in it; None without one."""
    # What a process remembers for a moment. It never waits for another one.
    caches: dict[str, dict[str, Any]] = {"default": {**_MEMORY, "LOCATION": "default"}}
    # How many requests somebody made to the API, and who came back from a sign-in provider. With Redis all web servers
    # know it.
    caches["throttling"] = {**_MEMORY, "LOCATION": "throttling"}
    if redis:
        caches["throttling"] = {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "KEY_PREFIX": "toolflow",
            "LOCATION": "rediss://" if redis["ssl"] else "redis://",
            "OPTIONS": {
                **{name: value for name, value in redis.items() if name != "ssl"},
                # Seconds. Every request to the API waits for it.
                "socket_connect_timeout": 0.5,
                "socket_timeout": 0.5,
            },
        }
    return caches
