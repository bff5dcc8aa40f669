"""What a run may be given besides its input, read from what people type: priority, budgets, time limit."""

from __future__ import annotations

import re
from decimal import Decimal

from flows.engine.spec import COST_PLACES, LEAST_COST_BUDGET, MAX_COST_BUDGET, MAX_TIME_LIMIT, MAX_TOKEN_BUDGET
from runs.models import Priority

_GROUPED = re.compile(r"[0-9]{1,3}([, \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}][0-9]{3})+")
"""A number in groups of three, as pages and sentences show it: it may be pasted."""

PRIORITIES = {priority.name.lower(): priority for priority in Priority}


def read_priority(text: str) -> Priority:
    """``high``, ``normal`` or ``low``; nothing is normal. Raises ``ValueError`` with a sentence."""
    if not text:
        return Priority.NORMAL
    if text not in PRIORITIES:
        raise ValueError(f"“{text[:40]}” is not a priority; it can be {', '.join(PRIORITIES)}.")
    return PRIORITIES[text]


def read_token_budget(text: str) -> int | None:
    """A number of tokens, None for nothing. Raises ``ValueError`` with a sentence."""
    return _read_whole(text, "token budget", MAX_TOKEN_BUDGET, "20000")


def read_time_limit(text: str) -> int | None:
    """A number of seconds, None for nothing. Raises ``ValueError`` with a sentence."""
    return _read_whole(text, "time limit", MAX_TIME_LIMIT, "600", unit=" of seconds")


def read_cost_budget(text: str) -> Decimal | None:
    """An amount of USD, None for nothing. Raises ``ValueError`` with a sentence."""
    if not text.strip():
        return None
    amount = text.strip().removeprefix("$").strip()
    pattern = rf"[0-9]{{1,12}}(\.[0-9]{{1,{COST_PLACES}}})?"
    if not re.fullmatch(pattern, amount) or not LEAST_COST_BUDGET <= Decimal(amount) <= MAX_COST_BUDGET:
        raise ValueError(
            f"“{text[:40]}” is not a cost budget; write USD from {LEAST_COST_BUDGET} to {MAX_COST_BUDGET:,}, like 0.50."
        )
    return Decimal(amount)


def _read_whole(text: str, what: str, most: int, example: str, *, unit: str = "") -> int | None:
    digits = text.strip()
    if not digits:
        return None
    if _GROUPED.fullmatch(digits):
        digits = re.sub(r"[^0-9]", "", digits)
    if not re.fullmatch(r"[0-9]{1,16}", digits) or not 1 <= int(digits) <= most:
        kind = f"a whole number{unit} up to {most:,}"
        raise ValueError(f"“{text[:40]}” is not a {what}; write {kind}, like {example}.")
    return int(digits)
