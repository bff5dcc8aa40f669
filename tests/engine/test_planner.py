"""The rules of the planner. Nothing here is patched, and no network, database or clock is near."""

from __future__ import annotations

import pytest

from flows.engine.errors import ModelErrorCode
from flows.engine.planner import (
    LONGEST_BACKOFF,
    LONGEST_RETRY_AFTER,
    Call,
    Compute,
    EndReason,
    EndStatus,
    Finish,
    Wait,
    next_action,
)
from tests.engine.builders import (
    NOON,
    make_attempt,
    make_error,
    make_flow,
    make_history,
    make_issue,
    make_step,
    seconds,
)

TWO_STEPS = make_flow(make_step(1), make_step(2))


def finish(action: object) -> Finish:
    assert isinstance(action, Finish)
    return action


def wait(action: object) -> Wait:
    assert isinstance(action, Wait)
    return action


class TestOrder:
    def test_a_new_run_calls_the_first_step(self) -> None:
        assert next_action(TWO_STEPS, make_history()) == Call(step=1, number=1)

    def test_a_passed_step_is_followed_by_the_next(self) -> None:
        assert next_action(TWO_STEPS, make_history(make_attempt(1))) == Call(step=2, number=1)

    def test_a_local_step_is_computed_instead_of_called(self) -> None:
        flow = make_flow(make_step(1, compute="input"))
        assert next_action(flow, make_history()) == Compute(step=1, number=1)

    def test_the_run_succeeds_when_every_step_passed(self) -> None:
        end = finish(next_action(TWO_STEPS, make_history(make_attempt(1), make_attempt(2))))
        assert (end.status, end.reason, end.blocking) == (EndStatus.SUCCEEDED, EndReason.ALL_STEPS_PASSED, None)

    def test_asking_twice_gives_the_same_answer(self) -> None:
        history = make_history(make_attempt(1, outcome="errored"))
        assert next_action(TWO_STEPS, history) == next_action(TWO_STEPS, history)


class TestRetries:
    @pytest.mark.parametrize("outcome", ["failed", "invalid"])
    def test_an_output_that_did_not_pass_is_tried_again_at_once(self, outcome: str) -> None:
        assert next_action(TWO_STEPS, make_history(make_attempt(1, outcome=outcome))) == Call(step=1, number=2)

    def test_three_retries_are_the_default_so_a_step_has_four_attempts(self) -> None:
        failed = [make_attempt(1, number, "failed") for number in (1, 2, 3, 4)]
        assert next_action(TWO_STEPS, make_history(*failed[:3])) == Call(step=1, number=4)
        assert finish(next_action(TWO_STEPS, make_history(*failed))).blocking == (1, 4)

    def test_no_retries_means_one_attempt(self) -> None:
        flow = make_flow(make_step(max_retries=0))
        assert finish(next_action(flow, make_history(make_attempt(1, outcome="failed")))).blocking == (1, 1)

    def test_transport_errors_and_bad_outputs_share_the_tries(self) -> None:
        flow = make_flow(make_step(max_retries=2))
        history = make_history(
            make_attempt(1, 1, "errored"), make_attempt(1, 2, "failed"), make_attempt(1, 3, "invalid")
        )
        assert finish(next_action(flow, history)).status is EndStatus.FAILED

    def test_interrupted_attempts_are_not_counted_as_retries(self) -> None:
        flow = make_flow(make_step(max_retries=1))
        history = make_history(
            make_attempt(1, 1, "interrupted"), make_attempt(1, 2, "failed"), make_attempt(1, 3, "interrupted")
        )
        assert next_action(flow, history) == Call(step=1, number=4)

    def test_an_interrupted_attempt_never_decides(self) -> None:
        flow = make_flow(make_step(max_retries=0))
        history = make_history(make_attempt(1, 1, "failed"), make_attempt(1, 2, "interrupted"))
        end = finish(next_action(flow, history))
        assert (end.status, end.blocking) == (EndStatus.FAILED, (1, 1))

    def test_a_pass_on_the_last_try_counts(self) -> None:
        flow = make_flow(make_step(max_retries=1))
        history = make_history(make_attempt(1, 1, "failed"), make_attempt(1, 2, "passed"))
        assert finish(next_action(flow, history)).status is EndStatus.SUCCEEDED


class TestVerdicts:
    FLOW = make_flow(make_step(1, max_retries=0), make_step(2, max_retries=0))

    def test_a_step_exhausted_on_audits_fails_the_run_and_says_which_issues(self) -> None:
        attempt = make_attempt(1, outcome="failed", issues=(make_issue("critical"), make_issue("low")))
        end = finish(next_action(self.FLOW, make_history(attempt)))
        assert (end.status, end.reason, end.blocking) == (EndStatus.FAILED, EndReason.STEP_FAILED, (1, 1))
        assert end.sentence == (
            "Step 1 “Step 1” did not pass in 1 attempt: the last output has 1 critical and 1 low issue; "
            "critical: too_short."
        )

    def test_it_names_the_audits_of_the_gravest_issues_but_not_all_of_very_many(self) -> None:
        issues = [make_issue("high", audit=f"Audit {number}") for number in (1, 1, 2, 3, 4, 5)]
        attempt = make_attempt(1, outcome="failed", issues=(make_issue("low", audit="Small"), *issues))
        sentence = finish(next_action(self.FLOW, make_history(attempt))).sentence
        assert sentence.endswith("has 6 high and 1 low issue; high: Audit 1, Audit 2, Audit 3 and 2 more.")

    def test_a_step_exhausted_on_invalid_outputs_fails_the_run(self) -> None:
        issue = make_issue(code="refusal", description="The model refused.")
        end = finish(next_action(self.FLOW, make_history(make_attempt(1, outcome="invalid", issues=(issue,)))))
        assert end.status is EndStatus.FAILED
        assert "The model refused." in end.sentence

    def test_a_failure_reason_is_what_the_sentence_says(self) -> None:
        attempt = make_attempt(1, outcome="failed", failure_reason="three colours are too alike.")
        end = finish(next_action(self.FLOW, make_history(attempt)))
        assert end.sentence.endswith("did not pass in 1 attempt: three colours are too alike.")

    def test_a_step_exhausted_on_transport_errors_is_errored_and_never_failed(self) -> None:
        end = finish(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored"))))
        assert (end.status, end.reason) == (EndStatus.ERRORED, EndReason.PROVIDER_ERROR)
        assert "The provider failed (500)." in end.sentence

    def test_the_last_attempt_decides_between_failed_and_errored(self) -> None:
        flow = make_flow(make_step(max_retries=1))
        history = make_history(make_attempt(1, 1, "failed"), make_attempt(1, 2, "errored"))
        assert finish(next_action(flow, history)).status is EndStatus.ERRORED

    @pytest.mark.parametrize(
        "code",
        [
            ModelErrorCode.UNAUTHORIZED,
            ModelErrorCode.FORBIDDEN,
            ModelErrorCode.NOT_FOUND,
            ModelErrorCode.BAD_REQUEST,
            ModelErrorCode.NOT_CONFIGURED,
        ],
    )
    def test_an_error_that_trying_again_cannot_mend_ends_the_run_at_once(self, code: ModelErrorCode) -> None:
        flow = make_flow(make_step(1, stop_on_failure=False), make_step(2))
        history = make_history(make_attempt(1, outcome="errored", error=make_error(code, "The key is wrong.")))
        end = finish(next_action(flow, history))
        assert (end.status, end.reason, end.blocking) == (EndStatus.ERRORED, EndReason.CALL_REFUSED, (1, 1))
        assert end.sentence == "Step 1 “Step 1”, attempt 1: The key is wrong."


class TestStopOnFailure:
    FLOW = make_flow(make_step(1, max_retries=0, stop_on_failure=False), make_step(2, max_retries=0))

    def test_by_default_a_step_that_did_not_pass_stops_the_flow(self) -> None:
        flow = make_flow(make_step(1, max_retries=0), make_step(2))
        assert isinstance(next_action(flow, make_history(make_attempt(1, outcome="failed"))), Finish)

    def test_without_it_the_flow_goes_on(self) -> None:
        assert next_action(self.FLOW, make_history(make_attempt(1, outcome="failed"))) == Call(step=2, number=1)

    def test_and_the_run_still_does_not_succeed(self) -> None:
        history = make_history(make_attempt(1, outcome="failed"), make_attempt(2))
        end = finish(next_action(self.FLOW, history))
        assert (end.status, end.blocking) == (EndStatus.FAILED, (1, 1))


class TestWaits:
    FLOW = make_flow(make_step(max_retries=20))

    def test_the_wait_after_a_transport_error_names_an_absolute_time_and_what_follows(self) -> None:
        action = wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored"))))
        assert action.then == Call(step=1, number=2)
        assert NOON + seconds(0.5) <= action.until <= NOON + seconds(1)

    def test_each_further_error_doubles_the_wait_up_to_a_bound(self) -> None:
        attempts = []
        longest = []
        for number in range(1, 12):
            attempts.append(make_attempt(1, number, "errored"))
            longest.append((wait(next_action(self.FLOW, make_history(*attempts))).until - NOON).total_seconds())
        for position, delay in enumerate(longest):
            bound = min(2.0**position, LONGEST_BACKOFF)
            assert bound / 2 <= delay <= bound

    def test_a_bad_output_in_between_starts_the_waits_over(self) -> None:
        history = make_history(
            make_attempt(1, 1, "errored"),
            make_attempt(1, 2, "errored"),
            make_attempt(1, 3, "failed"),
            make_attempt(1, 4, "errored"),
        )
        assert wait(next_action(self.FLOW, history)).until <= NOON + seconds(1)

    def test_retry_after_is_honoured(self) -> None:
        error = make_error(ModelErrorCode.RATE_LIMITED, retry_after=20)
        action = wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored", error=error))))
        assert NOON + seconds(20) <= action.until <= NOON + seconds(22)

    def test_a_provider_that_asks_for_a_year_is_asked_again_after_an_hour(self) -> None:
        error = make_error(ModelErrorCode.RATE_LIMITED, retry_after=31_536_000)
        action = wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored", error=error))))
        assert action.until <= NOON + seconds(LONGEST_RETRY_AFTER * 1.1)

    def test_runs_that_failed_together_do_not_come_back_together(self) -> None:
        moments = {
            wait(next_action(self.FLOW, make_history(make_attempt(1, outcome="errored"), run_id=f"run-{n}"))).until
            for n in range(20)
        }
        assert len(moments) == 20

    def test_an_audit_failure_does_not_wait(self) -> None:
        assert next_action(self.FLOW, make_history(make_attempt(1, outcome="failed"))) == Call(step=1, number=2)
