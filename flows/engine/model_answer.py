"""What a response says, whichever API it came by: read by ``chat_api`` and ``responses_api``, judged by ``reply``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.usage import UNREPORTED_USAGE, TokenUsage

_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The parts of one response that matter, as they came: nothing here is checked."""

    model: Any = None
    response_id: Any = None
    finish_reason: Any = None
    """In the words of chat completions."""
    service_tier: Any = None
    usage: TokenUsage = UNREPORTED_USAGE
    functions: tuple[Mapping[str, Any], ...] = ()
    """What was called: ``name`` and ``arguments`` of each call."""
    calls: Any = None
    """The calls whole, for the record."""
    content: Any = None
    """Text in place of a call."""
    refusal: Any = None
    fault: tuple[str, str] | None = None
    """The code and the description of an issue, where there is no answer in the response."""


def read_tokens(
    *, prompt: Any, completion: Any, total: Any, cached: Any, reasoning: Any
) -> TokenUsage:  # fmt: skip
    """The tokens that a response reports; ``UNREPORTED_USAGE`` where it reports none or what can't be true.

    Cached and reasoning tokens are parts: more than the whole is taken to mean the whole.
    """
    prompt, completion = _read_count(prompt), _read_count(completion)
    if prompt is None or completion is None:
        return UNREPORTED_USAGE
    return TokenUsage(
        prompt=prompt,
        completion=completion,
        total=max(_read_count(total) or 0, prompt + completion),
        cached=min(_read_count(cached) or 0, prompt),
        reasoning=min(_read_count(reasoning) or 0, completion),
    )


def _read_count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if is_count else None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is an object, else an empty one."""
    # What JSON gives is a dict; asking for that first is far cheaper.
    return value if type(value) is dict or isinstance(value, Mapping) else {}
