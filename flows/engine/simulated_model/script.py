"""What the simulated model answers, and what goes wrong with it: by script and by chance.

Chance comes out the same each time: it is drawn from a seed and what the draw is about.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FAULT_KEY = "$fault"
"""Marks a fault in a script of JSON types."""


class FaultKind(StrEnum):
    """What can go wrong with a call."""

    RATE_LIMITED = "rate_limited"
    """HTTP 429 with ``Retry-After``."""
    SERVER_ERROR = "server_error"
    """HTTP 500."""
    RESET = "reset"
    """The connection breaks before an answer comes."""
    HANG = "hang"
    """No answer until the client gives up."""
    HTML = "html"
    """An HTML page with status 200, as a proxy in between would send."""
    MALFORMED = "malformed"
    """Arguments that are not valid JSON."""
    NOT_OBJECT = "not_object"
    """Arguments that are JSON and no object."""
    TRUNCATED = "truncated"
    """An answer cut off in the middle, ``finish_reason`` ``length``."""
    WRONG_TOOL = "wrong_tool"
    """A call of another tool."""
    NO_TOOL = "no_tool"
    """Plain text in place of a call."""
    REFUSAL = "refusal"
    """The model says that it won't."""
    CONTENT_FILTER = "content_filter"
    """Nothing, ``finish_reason`` ``content_filter``."""
    EMPTY_CHOICES = "empty_choices"
    """A response whose ``choices`` is an empty list."""

    @property
    def is_transport(self) -> bool:
        """Whether no answer of the model comes at all, so that the attempt leaves no issue that a retry shows."""
        return self in _TRANSPORT


_TRANSPORT = frozenset(
    {FaultKind.RATE_LIMITED, FaultKind.SERVER_ERROR, FaultKind.RESET, FaultKind.HANG, FaultKind.HTML}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. ``retry_after`` (seconds) is sent with ``rate_limited``."""

    kind: FaultKind
    retry_after: float = 1.0

    @classmethod
    def named(cls, name: str, retry_after: float = 1.0) -> Fault:
        """The fault of that name. Raises ``ValueError`` that lists the known names."""
        try:
            return cls(FaultKind(name), retry_after)
        except ValueError:
            raise ValueError(f"There is no fault “{name}”. Known are: {', '.join(FaultKind)}.") from None


# ---------------------------------------------------------------------------------------------------------------
# Script

ReplyFunction = Callable[[dict[str, Any], Any], "Mapping[str, Any] | Fault"]
"""Called with the request body and the input (the last user message, as JSON where it is JSON)."""

Reply = Mapping[str, Any] | ReplyFunction | Fault | None
"""The arguments of the tool call, a function that gives them, a fault, or None for something invented."""


class Script:
    """Replies by the name of the tool that is called, one for each attempt of a step.

    Which reply of a list is due follows from the request alone, by how many earlier outputs its system message shows:
    the first call gets ``replies[0]``, the try after one output gets ``replies[1]``, and the last one repeats. So a
    script is right after a restart and for many runs at once. A call that broke in transport leaves nothing to show:
    the number of the attempt tells that it was made.
    """

    def __init__(self, replies: Mapping[str, Sequence[Reply]]) -> None:
        """Raises ``ValueError`` if a tool has no reply at all."""
        self._replies = {tool: tuple(sequence) for tool, sequence in replies.items()}
        if empty := [tool for tool, sequence in self._replies.items() if not sequence]:
            raise ValueError(f"The script has an empty list of replies for the tool “{empty[0]}”: give it one or more.")

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any]) -> Script:
        """Read a script of JSON types: ``{tool: [reply, ...]}``.

        A reply is the object of arguments, ``{"$fault": "rate_limited", "retry_after": 2}``, or null for something
        invented. Raises ``ValueError`` that names the tool and the reply that is wrong.
        """
        replies: dict[str, list[Reply]] = {}
        for tool, sequence in document.items():
            if not isinstance(sequence, list):
                raise ValueError(f"The replies of the tool “{tool}” must be a list, not {type(sequence).__name__}.")
            replies[tool] = []
            for position, entry in enumerate(sequence, start=1):
                try:
                    replies[tool].append(_parse_reply(entry))
                except (TypeError, ValueError) as error:
                    raise ValueError(f"Reply {position} of the tool “{tool}”: {error}") from None
        return cls(replies)

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that have replies."""
        return frozenset(self._replies)

    def __or__(self, other: Script) -> Script:
        """Both scripts as one. Raises ``ValueError`` if both have replies for a tool."""
        if clash := self.tools & other.tools:
            raise ValueError(f"Both scripts have replies for: {', '.join(sorted(clash))}. Rename one of the tools.")
        return Script({**self._replies, **other._replies})

    def find_reply(self, tool: str, *, shown: int, hidden: int) -> Reply:
        """The reply that is due, None where something is to be invented.

        ``shown`` is how many earlier outputs the request shows, ``hidden`` how many calls brought none.
        """
        sequence = self._replies.get(tool, (None,))
        for reply in sequence[:-1]:
            if isinstance(reply, Fault) and reply.kind.is_transport:
                left = hidden = hidden - 1
            else:
                left = shown = shown - 1
            if left < 0:
                return reply
        return sequence[-1]


def _parse_reply(entry: Any) -> Reply:
    if not isinstance(entry, dict | None):
        raise TypeError(f"it must be an object of arguments, not {type(entry).__name__}.")
    if entry is None or FAULT_KEY not in entry:
        return entry
    if unknown := entry.keys() - {FAULT_KEY, "retry_after"}:
        raise ValueError(f"a fault can't have {', '.join(sorted(unknown))}.")
    return Fault.named(entry[FAULT_KEY], float(entry.get("retry_after", 1.0)))


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
        """``rates`` are shares of all calls, from 0 to 1, by the name of the fault (``rate_limited``).

        Raises ``ValueError`` for a name that is unknown, a rate out of bounds, or a sum above 1.
        """
        self._rates = [(Fault.named(name, retry_after), rate) for name, rate in rates.items()]
        for name, rate in rates.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"The rate of “{name}” must be between 0 and 1, not {rate}.")
        if math.fsum(rates.values()) > 1 + 1e-9:
            raise ValueError(f"The rates of faults add up to {math.fsum(rates.values()):g}; they must not pass 1.")
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
