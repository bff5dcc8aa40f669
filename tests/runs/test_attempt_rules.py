"""Which attempts are first tries, which are retries, and whether those led anywhere."""

from __future__ import annotations

import pytest

from flows.engine.history import Outcome
from runs.attempt_rules import classify_attempts


@pytest.mark.parametrize(
    ("outcomes", "parts"),
    [
        # Each try after the first is a retry; the end of the step says whether it was of use.
        ("", ""),
        ("passed", "first"),
        ("failed invalid passed", "first useful useful"),
        ("failed failed", "first wasted"),
        # An attempt without an output belongs to the try that it was meant to be.
        ("interrupted passed", "first first"),
        ("interrupted failed passed", "first first useful"),
        ("failed interrupted passed", "first useful useful"),
        ("failed cancelled", "first wasted"),
        ("errored errored passed", "first first first"),
        ("failed errored passed", "first useful useful"),
        ("failed errored", "first wasted"),
    ],
)
def test_the_parts_of_a_step(outcomes: str, parts: str) -> None:
    assert classify_attempts([(1, Outcome(outcome)) for outcome in outcomes.split()]) == parts.split()


def test_steps_are_judged_each_for_itself() -> None:
    attempts = [(1, "failed"), (1, "passed"), (2, "failed"), (2, "failed"), (3, "failed"), (3, "")]
    assert classify_attempts(attempts) == ["first", "useful", "first", "wasted", "first", "wasted"]
