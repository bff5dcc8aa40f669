"""Durations as counts: how many runs took how long, to within two and a half per cent.

A duration falls into one of many buckets, each five per cent wider than the one before it. Counts of buckets can be
added up over days and versions, and any percentile be read off the sum. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

SHORTEST = 0.001
"""Seconds up to which durations are all the same: bucket 0."""
WIDTH = 1.05
"""How many times as long the longest duration of a bucket is as its shortest."""

_LOG_WIDTH = math.log(WIDTH)


def find_bucket(seconds: float) -> int:
    """The number of the bucket that a duration falls into; 0 for one that is not above a millisecond, or negative."""
    return 0 if seconds <= SHORTEST else math.ceil(math.log(seconds / SHORTEST) / _LOG_WIDTH)


def read_percentile(counts: Mapping[str, int], percent: float) -> float | None:
    """Seconds that ``percent`` of 100 durations took at most; None if there are none.

    ``counts`` has the number of durations by that of their bucket, as text, the way JSON keeps it. The answer is the
    middle of a bucket: at most 2.5 % above or below the duration that it stands for.
    """
    rank = max(1, math.ceil(sum(counts.values()) * percent / 100))
    seen = 0
    for bucket in sorted(counts, key=int):
        seen += counts[bucket]
        if seen >= rank:
            return SHORTEST * WIDTH ** (int(bucket) - 0.5) if int(bucket) else SHORTEST
    return None


def merge_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts of buckets added up."""
    # A page adds up hundreds: Counter takes twice as long.
    merged: dict[str, int] = {}
    for part in parts:
        for bucket, count in part.items():
            merged[bucket] = merged.get(bucket, 0) + count
    return merged
