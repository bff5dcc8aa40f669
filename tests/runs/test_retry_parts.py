"""Which attempts are first tries, which are retries, and whether those led anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import COUNTED, Outcome
from runs.retry_parts import classify_attempts


def classify(*outcomes: str) -> str:
    """The parts of the attempts of one step, as one text."""
    return " ".join(classify_attempts([(1, Outcome(outcome)) for outcome in outcomes]))


@pytest.mark.parametrize(
    ("outcomes", "parts"),
    [
        (["passed"], "first"),
        (["failed", "passed"], "first useful"),
        (["failed", "invalid", "passed"], "first useful useful"),
        (["failed", "failed"], "first wasted"),
    ],
)
def test_every_try_after_the_first_is_a_retry_and_the_end_of_the_step_says_whether_it_was_of_use(
    outcomes: list[str], parts: str
) -> None:
    assert classify(*outcomes) == parts


@pytest.mark.parametrize(
    ("outcomes", "parts"),
    [
        (["interrupted", "passed"], "first first"),
        (["interrupted", "interrupted"], "first first"),
        (["interrupted", "failed", "passed"], "first first useful"),
        (["failed", "interrupted", "passed"], "first useful useful"),
        (["failed", "interrupted"], "first wasted"),
        (["failed", "cancelled"], "first wasted"),
        (["errored", "errored", "passed"], "first first first"),
        (["failed", "errored", "passed"], "first useful useful"),
        (["failed", "errored"], "first wasted"),
    ],
)
def test_an_attempt_without_an_output_belongs_to_the_try_that_it_was_meant_to_be(
    outcomes: list[str], parts: str
) -> None:
    assert classify(*outcomes) == parts


def test_steps_are_judged_each_for_itself() -> None:
    attempts = [(1, "failed"), (1, "passed"), (2, "failed"), (2, "failed"), (3, "passed")]
    assert classify_attempts(attempts) == ["first", "useful", "first", "wasted", "first"]


def test_an_attempt_that_still_runs_has_led_to_no_pass_yet() -> None:
    assert classify_attempts([(1, "failed"), (1, "")]) == ["first", "wasted"]


def test_a_run_without_attempts_has_no_parts() -> None:
    assert classify_attempts([]) == []


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
