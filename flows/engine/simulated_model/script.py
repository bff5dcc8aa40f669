"""What the simulated model answers, and what goes wrong with it: by script and by chance.

Chance comes out the same each time: it is drawn from a seed and what the draw is about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """What can go wrong with a call."""

    RATE_LIMITED = "rate_limited"  # HTTP 429 with ``Retry-After``
    SERVER_ERROR = "server_error"  # HTTP 500
    RESET = "reset"  # the connection breaks before an answer comes
    HANG = "hang"  # no answer until the client gives up
    HTML = "html"  # an HTML page with status 200, as a proxy in between would send
    MALFORMED = "malformed"  # arguments that are not valid JSON
    NOT_OBJECT = "not_object"  # arguments that are JSON and no object
    TRUNCATED = "truncated"  # an answer cut off in the middle, ``finish_reason`` ``length``
    WRONG_TOOL = "wrong_tool"  # a call of another tool
    NO_TOOL = "no_tool"  # plain text in place of a call
    REFUSAL = "refusal"  # the model says that it won't
    CONTENT_FILTER = "content_filter"  # nothing, ``finish_reason`` ``content_filter``
    EMPTY_CHOICES = "empty_choices"  # a response whose ``choices`` is an empty list


TRANSPORT_FAULTS = frozenset(
    {FaultKind.RATE_LIMITED, FaultKind.SERVER_ERROR, FaultKind.RESET, FaultKind.HANG, FaultKind.HTML}
)
"""No answer of the model comes at all, so that the attempt leaves no issue that a retry shows."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. ``retry_after`` (seconds) is sent with ``rate_limited``."""

    kind: FaultKind
    retry_after: float = 1.0


ReplyFunction = Callable[[dict[str, Any], Any], "Mapping[str, Any] | Fault"]
"""Called with the request body and the input (the last user message, as JSON where it is JSON)."""

Reply = Mapping[str, Any] | ReplyFunction | Fault | None
"""The arguments of the tool call, a function that gives them, a fault, or None for something invented."""


Replies = Sequence[Reply] | Callable[[str], Sequence[Reply]]
"""One reply for each attempt of a step, or a function that gives them for the run of that name."""


class Script:
    """Replies by the name of the tool that is called, one for each attempt of a step.

    Which reply of a list is due follows from the request alone, by how many earlier outputs its system message shows:
    the first call gets ``replies[0]``, the try after one output gets ``replies[1]``, and the last one repeats. So a
    script is right after a restart and for many runs at once. A call that broke in transport leaves nothing to show:
    the number of the attempt shows that it was made.

    Replies that differ from run to run follow from what the idempotency key begins with.
    """

    def __init__(self, replies: Mapping[str, Replies]) -> None:
        """Raises ``ValueError`` if a tool has no reply at all."""
        self._replies = dict(replies)
        if not all(self._replies.values()):
            raise ValueError("Each tool of a script needs a list of one or more replies.")

    def find_reply(self, tool: str, *, shown: int, hidden: int, run: str = "") -> Reply:
        """The reply that is due, None where something is to be invented.

        ``shown`` is how many earlier outputs the request shows, ``hidden`` how many calls brought none,
        ``run`` what names the run.
        """
        found = self._replies.get(tool, (None,))
        sequence = found(run) if callable(found) else found
        for reply in sequence[:-1]:
            if isinstance(reply, Fault) and reply.kind in TRANSPORT_FAULTS:
                left = hidden = hidden - 1
            else:
                left = shown = shown - 1
            if left < 0:
                return reply
        return sequence[-1]


# ---------------------------------------------------------------------------------------------------------------
# Chance

Latency = float | tuple[float, float]
"""Seconds that an answer takes: always the same, or evenly spread between two bounds."""


def draw_fraction(*about: object) -> float:
    """A number from 0 up to 1 that looks random and depends on ``about`` alone."""
    digest = hashlib.blake2b("\x1f".join(map(str, about)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def draw_latency(latency: Latency, *about: object) -> float:
    """The seconds that one answer takes."""
    least, most = latency if isinstance(latency, tuple) else (latency, latency)
    return least + (most - least) * draw_fraction("latency", *about)


class Faults:
    """Faults that strike by chance, each kind with a rate of its own.

    The same call draws the same fault under the same seed; sent again, it draws again.
    """

    def __init__(self, rates: Mapping[str, float], *, seed: int = 0, retry_after: float = 1.0) -> None:
        """``rates`` are shares of all calls, from 0 to 1, by the kind of fault. Raises ``ValueError``."""
        self._rates = [(Fault(FaultKind(name), retry_after), rate) for name, rate in rates.items()]
        if not all(rate >= 0 for rate in rates.values()) or sum(rates.values()) > 1 + 1e-9:
            raise ValueError("The rates of faults must be 0 or more and add up to 1 at most.")
        self._seed = seed

    def draw(self, key: str, time: int) -> Fault | None:
        """The fault that strikes when the call with this ``key`` is seen for the ``time``-th time, if any."""
        left = draw_fraction("fault", self._seed, key, time) if self._rates else 0.0
        for fault, rate in self._rates:
            if left < rate:
                return fault
            left -= rate
        return None


NO_FAULTS = Faults({})
