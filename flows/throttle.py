"""How often one user asks for something that costs the server time: fixed windows, counted in Django's default cache.

That is the memory of one web process: several of them count each for itself, and a user may ask that many times as
often. It is enough to keep a runaway page or script from holding the server.
"""

from __future__ import annotations

import math

from django.core.cache import cache


def find_wait(scope: str, user_id: int | None, *, most: int, seconds: int, now: float) -> int:
    """Count one more request of a user; gives the whole seconds that it has to wait, 0 if it may be answered.

    At most ``most`` are answered in each window of ``seconds``; requests with the same ``scope`` share one count.
    ``now`` is the time in seconds since 1970.
    """
    window, elapsed = divmod(now, seconds)
    if _count_request(f"toolflow-rate:{scope}:{user_id}:{window:.0f}", seconds) <= most:
        return 0
    return max(math.ceil(seconds - elapsed), 1)


def _count_request(key: str, seconds: int) -> int:
    """How many requests ``key`` has seen, this one included."""
    cache.add(key, 0, timeout=seconds)
    try:
        return cache.incr(key)
    except ValueError:
        # The cache dropped the key between the two: a full one makes room, and counting starts anew.
        return 1
