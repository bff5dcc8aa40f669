"""Chance that comes out the same each time: everything random here is drawn from a seed and what the draw is about."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from flows.engine.simulated_model.script import Fault

Latency = float | tuple[float, float]
"""Seconds that an answer takes: always the same, or evenly spread between two bounds."""


def draw_fraction(*about: object) -> float:
    """A number from 0 up to 1 that looks random and depends on ``about`` alone."""
    digest = hashlib.blake2b("\x1f".join(map(str, about)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def draw_latency(latency: Latency, *about: object) -> float:
    """The seconds that one answer takes."""
    if isinstance(latency, tuple):
        least, most = latency
        return least + (most - least) * draw_fraction("latency", *about)
    return latency


def check_latency(latency: Latency) -> Latency:
    """``latency`` itself. Raises ``ValueError`` unless it is finite, not negative, and ordered."""
    least, most = latency if isinstance(latency, tuple) else (latency, latency)
    if not (0 <= least <= most and math.isfinite(most)):
        raise ValueError(f"Latency must be seconds, 0 or more, the lower bound first; not {latency}.")
    return latency


class Faults:
    """Faults that strike by chance, each kind with a rate of its own.

    The same call draws the same fault under the same seed; sent again, it draws anew.
    """

    def __init__(self, rates: Mapping[str, float], *, seed: int = 0, retry_after: float = 1.0) -> None:
        """``rates`` are shares of all calls, from 0 to 1, by the name of the fault (``rate_limited``).

        Raises ``ValueError`` for a name that is unknown, a rate out of bounds, or a sum above 1.
        """
        self._rates: list[tuple[Fault, float]] = []
        for name, rate in rates.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"The rate of “{name}” must be between 0 and 1, not {rate}.")
            self._rates.append((Fault.named(name, retry_after), rate))
        if math.fsum(rates.values()) > 1 + 1e-9:
            raise ValueError(f"The rates of faults add up to {math.fsum(rates.values()):g}; they must not pass 1.")
        self._seed = seed

    def draw(self, key: str, time: int) -> Fault | None:
        """The fault that strikes when the call with this ``key`` is seen for the ``time``-th time, if any."""
        if not self._rates:
            return None
        left = draw_fraction("fault", self._seed, key, time)
        for fault, rate in self._rates:
            if left < rate:
                return fault
            left -= rate
        return None


NO_FAULTS = Faults({})
