"""Which attempts are first tries, which are retries, and whether those led anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import COUNTED, Outcome
from runs.retry_parts import classify_attempts


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


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(list(Outcome))), max_size=12))
def test_each_attempt_is_in_one_part_and_each_step_has_one_first_try_at_most(
    attempts: list[tuple[int, Outcome]],
) -> None:
    attempts.sort(key=lambda attempt: attempt[0])
    parts = classify_attempts(attempts)
    assert len(parts) == len(attempts)
    for step in {step for step, _ in attempts}:
        own = [(outcome, part) for (at, outcome), part in zip(attempts, parts, strict=True) if at == step]
        tries = [part for outcome, part in own if outcome in COUNTED]
        assert tries.count("first") == min(len(tries), 1)
        assert own[0][1] == "first"
        assert not {"useful", "wasted"} <= {part for _, part in own}
