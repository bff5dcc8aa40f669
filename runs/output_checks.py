"""How far an output came, and so what it was looked at for: an output stops at the first check that it fails.

The run page and statistics both judge by this whether a later attempt mended what an earlier one got wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from flows.engine.history import Outcome
from flows.engine.schemas import MORE_SCHEMA_MISMATCHES, SCHEMA_MISMATCH
from flows.engine.typed_output import MORE_TYPE_MISMATCHES, TYPE_MISMATCH


class Check(IntEnum):
    """What an output goes through, in this order."""

    READ = 0
    """Was there a call of the tool, with arguments that can be read and sanitized?"""
    SCHEMA = 1
    TYPE = 2
    AUDITS = 3


_CHECKS = {
    SCHEMA_MISMATCH: Check.SCHEMA,
    MORE_SCHEMA_MISMATCHES: Check.SCHEMA,
    TYPE_MISMATCH: Check.TYPE,
    MORE_TYPE_MISMATCHES: Check.TYPE,
}
"""Of codes of issues that the engine raises; what else it raises about an output that it can't use comes first."""


def find_check(outcome: str, code: str) -> Check:
    """The check that raised an issue of an attempt with this outcome."""
    return _CHECKS.get(code, Check.READ) if outcome == Outcome.INVALID else Check.AUDITS


def find_reached(outcome: str, codes: Iterable[str]) -> Check | None:
    """The last check that an attempt with issues of these ``codes`` went through; None if it brought nothing."""
    if outcome == Outcome.INVALID:
        return max((find_check(outcome, code) for code in codes), default=Check.READ)
    return Check.AUDITS if outcome in (Outcome.PASSED, Outcome.FAILED) else None
