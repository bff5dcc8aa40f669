"""What the outcomes of a run's attempts say; pages and statistics both go by these rules.

How far an output came (it stops at the first check that it fails), and which part of the run's cost an attempt belongs
to: first attempts, retries that led to a pass, retries that did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from operator import itemgetter

from flows.engine.history import COUNTED, Outcome
from flows.engine.schemas import MORE_SCHEMA_MISMATCHES, SCHEMA_MISMATCH
from flows.engine.typed_output import MORE_TYPE_MISMATCHES, TYPE_MISMATCH

FIRST = "first"
"""The first output of a step, and what came before it without an output."""
USEFUL = "useful"
"""A further try of a step that passed in the end."""
WASTED = "wasted"
"""A further try of a step that did not pass, or not yet."""


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
"""Of issue codes of the engine; its other codes about an output that it can't use come before these checks."""


def find_check(outcome: str, code: str) -> Check:
    """The check that raised an issue of an attempt with this outcome."""
    return _CHECKS.get(code, Check.READ) if outcome == Outcome.INVALID else Check.AUDITS


def find_reached(outcome: str, codes: Iterable[str]) -> Check | None:
    """The last check that an attempt with issues of these ``codes`` went through; None if it brought nothing."""
    if outcome == Outcome.INVALID:
        return max((find_check(outcome, code) for code in codes), default=Check.READ)
    return Check.AUDITS if outcome in (Outcome.PASSED, Outcome.FAILED) else None


def classify_attempts(attempts: Sequence[tuple[int, Outcome | str]]) -> list[str]:
    """``first``, ``useful`` or ``wasted`` for each attempt of a run, given as step and outcome in their order.

    An attempt without an output (errored, interrupted, cancelled, still running) is not a retry: it belongs to the try
    that it was meant to be.
    """
    parts: list[str] = []
    for _, own in groupby(attempts, key=itemgetter(0)):
        outcomes = [outcome for _, outcome in own]
        retry = USEFUL if Outcome.PASSED in outcomes else WASTED
        part = FIRST
        for outcome in outcomes:
            parts.append(part)
            if outcome in COUNTED:
                part = retry
    return parts
