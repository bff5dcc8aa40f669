"""Which part of a run's bill an attempt belongs to: first attempts, retries that led to a pass, retries that did not.

Pages and statistics both split tokens and cost by this rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from flows.engine.history import COUNTED, Outcome

FIRST = "first"
"""The first output of a step, and what came before it without an output."""
USEFUL = "useful"
"""A further try of a step that passed in the end."""
WASTED = "wasted"
"""A further try of a step that did not pass, or not yet."""


def classify_attempts(attempts: Sequence[tuple[int, Outcome | str]]) -> list[str]:
    """``first``, ``useful`` or ``wasted`` for each attempt of a run, given as step and outcome in their order.

    An attempt that still runs has any other text for its outcome. An attempt without an output (errored, interrupted,
    cancelled) is no retry: it belongs to the try that it was meant to be, so that one before the first output is
    ``first``.
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
