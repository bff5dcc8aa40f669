"""The rules of the planner. Nothing here is patched, and no network, database or clock is near."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import ModelErrorCode
from flows.engine.history import Attempt, Outcome
from flows.engine.planner import MAX_BACKOFF, Call, EndReason, EndStatus, Finish, Wait, next_action
from tests.engine.builders import (
    NOON,
    make_attempt,
    make_error,
    make_flow,
    make_history,
    make_step,
    seconds,
)


def finish(action: object) -> Finish:
    assert isinstance(action, Finish)
    return action


def wait(action: object) -> Wait:
    assert isinstance(action, Wait)
    return action


class TestRetries:
    """Only outputs that did not pass use up tries; what was cut off or got no answer decides nothing."""

    @staticmethod
    def plan(max_retries: int, outcomes: str) -> object:
        attempts = (make_attempt(1, number, outcome) for number, outcome in enumerate(outcomes.split(), start=1))
        return next_action(make_flow(make_step(max_retries=max_retries), make_step(2)), make_history(*attempts))

    @pytest.mark.parametrize(
        ("max_retries", "outcomes", "blocking", "tries"),
        [
            (3, "failed failed failed failed", 4, "4 attempts"),
            (1, "errored errored failed errored invalid", 5, "2 attempts"),
            (0, "failed interrupted", 1, "1 attempt:"),
            (0, "failed cancelled", 1, "1 attempt:"),
        ],
    )
    def test_a_step_without_a_try_left_fails_the_run(
        self, max_retries: int, outcomes: str, blocking: int, tries: str
    ) -> None:
        end = finish(self.plan(max_retries, outcomes))
        assert (end.status, end.reason, end.blocking) == (EndStatus.FAILED, EndReason.STEP_FAILED, (1, blocking))
        assert f"did not pass in {tries}" in end.sentence


class TestVerdicts:
    FLOW = make_flow(make_step(1, max_retries=0), make_step(2, max_retries=0))

    def test_a_step_that_ends_on_transport_errors_is_errored_also_after_an_output_that_failed(self) -> None:
        flow = make_flow(make_step(retry_window=0))
        history = make_history(make_attempt(1, 1, "failed"), make_attempt(1, 2, "errored"))
        end = finish(next_action(flow, history))
        assert (end.status, end.reason, end.blocking) == (EndStatus.ERRORED, EndReason.PROVIDER_ERROR, (1, 2))
        assert "calls of this step are not repeated" in end.sentence

    @pytest.mark.parametrize("code", [code for code in ModelErrorCode if not code.is_retryable])
    def test_an_error_that_trying_again_cannot_mend_ends_the_run_at_once(self, code: ModelErrorCode) -> None:
        flow = make_flow(make_step(1, stop_on_failure=False), make_step(2))
        history = make_history(make_attempt(1, outcome="errored", error=make_error(code, "The key is wrong.")))
        end = finish(next_action(flow, history))
        assert (end.status, end.reason, end.blocking) == (EndStatus.ERRORED, EndReason.CALL_REFUSED, (1, 1))
        assert end.sentence == "Step 1 “Step 1”, attempt 1: The key is wrong."


class TestStopOnFailure:
    FLOW = make_flow(make_step(1, max_retries=0, stop_on_failure=False), make_step(2, max_retries=0))

    def test_without_it_the_flow_goes_on_and_the_run_still_does_not_succeed(self) -> None:
        failed = make_attempt(1, outcome="failed")
        assert next_action(self.FLOW, make_history(failed)) == Call(step=2, number=1)
        end = finish(next_action(self.FLOW, make_history(failed, make_attempt(2))))
        assert (end.status, end.blocking) == (EndStatus.FAILED, (1, 1))


class TestWaits:
    FLOW = make_flow()

    def test_the_wait_after_a_transport_error_names_an_absolute_time_what_follows_and_why(self) -> None:
        action = wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored"))))
        assert action.then == Call(step=1, number=2)
        assert NOON + seconds(0.5) <= action.until <= NOON + seconds(1)
        assert action.sentence.startswith("Waiting 1 second before attempt 2 of step 1.")

    def test_each_further_error_doubles_the_wait_up_to_a_bound(self) -> None:
        attempts = []
        for position in range(11):
            attempts.append(make_attempt(1, position + 1, "errored"))
            delay = (wait(next_action(self.FLOW, make_history(*attempts))).until - NOON).total_seconds()
            bound = min(2.0**position, MAX_BACKOFF)
            assert bound / 2 <= delay <= bound

    def test_a_bad_output_in_between_starts_the_waits_over(self) -> None:
        outcomes = ("errored", "errored", "failed", "errored")
        attempts = [make_attempt(1, number, outcome) for number, outcome in enumerate(outcomes, start=1)]
        assert wait(next_action(self.FLOW, make_history(*attempts))).until <= NOON + seconds(1)

    def test_retry_after_is_honoured(self) -> None:
        error = make_error(ModelErrorCode.RATE_LIMITED, retry_after=20)
        action = wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored", error=error))))
        assert NOON + seconds(20) <= action.until <= NOON + seconds(22)

    def test_runs_that_failed_together_do_not_come_back_together(self) -> None:
        moments = {
            wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored"), run_id=f"run-{n}"))).until
            for n in range(20)
        }
        assert len(moments) == 20


def make_course(*course: tuple[str, float, float]) -> list[Attempt]:
    """Attempts of step 1, each by its outcome, the seconds before its call, and those within it."""
    now, attempts = NOON, []
    for number, (outcome, before, within) in enumerate(course, start=1):
        started_at = now + seconds(before)
        now = started_at + seconds(within)
        attempts.append(make_attempt(1, number, outcome, started_at=started_at, ended_at=now))
    return attempts


class TestRetryWindow:
    FLOW = make_flow(make_step(retry_window=100))

    def test_a_retry_after_beyond_its_end_ends_the_step_at_once_and_says_so(self) -> None:
        error = make_error(ModelErrorCode.RATE_LIMITED, "The limit is reached (429).", retry_after=3_600)
        end = finish(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored", error=error))))
        assert (end.status, end.reason, end.blocking) == (EndStatus.ERRORED, EndReason.PROVIDER_ERROR, (1, 1))
        assert "the provider asks to wait 3,600 s; 100 s of the retry window" in end.sentence

    @given(
        course=st.lists(
            st.tuples(
                st.sampled_from(["errored", "errored", "failed", "invalid", "interrupted", "cancelled"]),
                st.sampled_from([0.0, 0.5, 30.0, 50.0, 100.0]),
                st.sampled_from([0.0, 1.0, 120.0]),
            ),
            max_size=12,
        ),
        max_retries=st.integers(min_value=0, max_value=3),
    )
    def test_it_decides_as_a_plain_reckoning_does(
        self, course: list[tuple[str, float, float]], max_retries: int
    ) -> None:
        flow = make_flow(make_step(retry_window=100, max_retries=max_retries))
        attempts = make_course(*course)
        action = next_action(flow, make_history(*attempts))
        match reckon(attempts, tries=max_retries + 1, window=seconds(100)):
            case "call":
                assert action == Call(1, len(attempts) + 1)
            case "wait":
                assert wait(action).then == Call(1, len(attempts) + 1)
            case verdict:
                assert finish(action).status == verdict


def reckon(attempts: list[Attempt], *, tries: int, window: timedelta) -> str:
    """What comes after the attempts of a step: time since the first error, without what its later calls took."""
    last, outputs = None, 0
    first_error_at, inside, spent = None, timedelta(0), timedelta(0)
    for attempt in attempts:
        assert attempt.started_at is not None and attempt.ended_at is not None
        if attempt.outcome in (Outcome.INTERRUPTED, Outcome.CANCELLED):
            inside += attempt.ended_at - attempt.started_at
            continue
        last = attempt.outcome
        if last is not Outcome.ERRORED:
            outputs, first_error_at = outputs + 1, None
        elif first_error_at is None:
            first_error_at, inside, spent = attempt.ended_at, timedelta(0), timedelta(0)
        else:
            inside += attempt.ended_at - attempt.started_at
            spent = attempt.ended_at - first_error_at - inside
    if last is None:
        return "call"
    if last is Outcome.ERRORED:
        return "wait" if spent < window else "errored"
    return "call" if outputs < tries else "failed"
