"""The rules of the planner: what comes next, when a step is over and which attempt counts; nothing is patched."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine import AuditSpec, FlowSpec, ModelSettings, Registry, check_spec
from flows.engine.errors import ModelErrorCode
from flows.engine.history import Attempt, History, Outcome, Severity
from flows.engine.planner import MAX_BACKOFF, Action, Call, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.providers import Provider, Providers
from flows.engine.settling import find_called_step, find_step_final
from flows.engine.spec import OnExhausted, StepSpec
from tests.conftest import IS_LONG
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
from tests.engine.executions import LENGTH, LONG, SHORT, execute, simulate


def finish(action: object) -> Finish:
    assert isinstance(action, Finish)
    return action


def wait(action: object) -> Wait:
    assert isinstance(action, Wait)
    return action


class TestVerdicts:
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


AUDITS = (AuditSpec(name="A", rule="true"), AuditSpec(name="B", rule="true", severity=Severity.MEDIUM))
ISSUES = [
    make_issue(severity, audit=name, path=path) for severity in Severity for name in "AB" for path in ("/a", "/b")
]
BLOCKING = [one for one in ISSUES if one.severity >= {"A": Severity.CRITICAL, "B": Severity.MEDIUM}[one.audit]]

failed = st.builds(
    lambda output, blocking, others: make_attempt(outcome="failed", output=output, issues=(blocking, *others)),
    st.sampled_from([{"text": 1}, {"text": 1.0}, {"text": "x"}]),
    st.sampled_from(BLOCKING),
    st.lists(st.sampled_from(ISSUES), max_size=2),
)
others = st.sampled_from(
    [
        make_attempt(outcome="invalid", raw_output="no", issues=(make_issue(),)),
        make_attempt(outcome="errored"),
        make_attempt(outcome="interrupted"),
    ]
)
attempts = st.lists(st.one_of(failed, failed, failed, others), max_size=9)
steps = st.builds(
    lambda **fields: make_step(audits=AUDITS, **fields),
    max_retries=st.integers(0, 6),
    stall_after=st.none() | st.integers(2, 4),
    last_model=st.none() | st.just("gpt-5"),
    on_exhausted=st.sampled_from(OnExhausted),
)


def expect(step: StepSpec, made: list[Attempt]) -> tuple[Any, ...]:
    """What is to happen after these attempts, none of which passed, if the last one brought an output."""
    outputs = [one for one in made if one.outcome in ("failed", "invalid")]
    allowed, stuck = step.max_retries + 1, False
    for end in range(1, len(outputs) + 1):
        row = outputs[max(0, end - (step.stall_after or 99)) : end]
        texts = {json.dumps([one.output, one.raw_output]) for one in row}
        causes = set()
        for one in row:
            blocking = [issue for issue in one.issues if issue in BLOCKING] or one.issues
            causes.add(frozenset((issue.audit, issue.code, issue.path) for issue in blocking))
        if len(row) == step.stall_after and not stuck and 1 in (len(texts), len(causes)):
            stuck, allowed = True, min(allowed, end + (1 if step.last_model else 0))
    if len(outputs) < allowed:
        is_last = stuck or len(outputs) == step.max_retries
        return "call", len(made) + 1, step.last_model if step.last_model and is_last else "gpt-4.1"
    usable = [one for one in outputs if one.outcome == "failed"]
    if step.on_exhausted == "accept_best" and usable:
        for severity in ("critical", "high", "medium", "low"):
            counts = [sum(issue.severity == severity for issue in one.issues) for one in usable]
            usable = [one for one, count in zip(usable, counts, strict=True) if count == min(counts)]
        return "accept", usable[-1].number
    return "fail", EndReason.STEP_FAILED if len(outputs) > step.max_retries else EndReason.STALLED


def describe(spec: FlowSpec, history: History, action: Action) -> tuple[Any, ...]:
    step = spec.steps[0]
    if isinstance(action, Call):
        return "call", action.number, find_called_step(step, history.attempts(1)).model
    assert isinstance(action, Finish)
    if action.status is EndStatus.SUCCEEDED:
        final = find_step_final(spec, history, 1)
        return "accept", final and final.number
    return "fail", action.reason


@settings(max_examples=10_000 if IS_LONG else 200, deadline=None)
@given(steps, attempts)
def test_a_step_goes_on_and_ends_as_the_plain_reference_says(step: StepSpec, made: list[Attempt]) -> None:
    spec, history = make_flow(step), make_history()
    for attempt in made:
        action = next_action(spec, history)
        if isinstance(action, Finish):
            break
        before = list(history.attempts(1))
        decided = [one for one in before if one.outcome is not Outcome.INTERRUPTED]
        if not decided or decided[-1].outcome is not Outcome.ERRORED:
            assert describe(spec, history, action) == expect(step, before)
        else:
            assert isinstance(action, Wait)  # errors use up no tries
        history = history.append(attempt.model_copy(update={"number": len(before) + 1}))
    decided = [one for one in history.attempts(1) if one.outcome is not Outcome.INTERRUPTED]
    if not decided or decided[-1].outcome is not Outcome.ERRORED:
        assert describe(spec, history, next_action(spec, history)) == expect(step, list(history.attempts(1)))


class TestRuns:
    async def test_what_is_accepted_goes_on_as_the_result_of_its_step(self) -> None:
        best, worse = {"text": "Tea!"}, {"text": ""}
        empty = AuditSpec(name="Empty", rule="output.text != ''")
        first = make_step(1, audits=(LENGTH, empty), max_retries=2, on_exhausted=OnExhausted.ACCEPT_BEST)
        flow = make_flow(first, make_step(2, system_message="{steps[1].output.text}"))
        end = await execute(flow, simulate(tool_1=[worse, best, worse], tool_2=[LONG]))
        assert end.finish is not None
        assert (end.finish.status, end.finish.accepted) == ("succeeded", ((1, 2),))
        call = end.history.attempts(2)[0]
        assert call.input == best and call.request is not None and call.request["messages"][0]["content"] == "Tea!"

    async def test_the_last_model_is_asked_for_the_last_try_without_what_it_does_not_take(self) -> None:
        step = make_step(audits=(LENGTH,), max_retries=1, last_model="gpt-5", temperature=0.5)
        end = await execute(make_flow(step), simulate(tool_1=[SHORT]))
        first, last = (one.request or {} for one in end.history.attempts(1))
        assert (first["model"], first["temperature"]) == ("gpt-4.1", 0.5)
        assert last["model"] == "gpt-5" and "temperature" not in last


class TestChecks:
    def find_paths(self, step: StepSpec) -> list[str]:
        providers = Providers(Provider(api_key="k" * 16))
        defaults = ModelSettings(model="gpt-4.1")
        return [one.path for one in check_spec(make_flow(step), Registry(), defaults=defaults, providers=providers)]

    def test_what_can_not_be_is_refused_at_its_field(self) -> None:
        assert self.find_paths(make_step(last_model="nowhere:gpt-5")) == ["/steps/0/last_model"]
        assert self.find_paths(make_step(last_model="gpt-5", max_retries=0)) == ["/steps/0/last_model"]
        assert self.find_paths(make_step(last_model="gpt-4o", reasoning_effort="low", model="gpt-5")) == [
            "/steps/0/last_model"
        ]
        local = make_step(compute="{'text': ''}", stall_after=2, last_model="gpt-5", on_exhausted="accept_best")
        assert self.find_paths(local) == ["/steps/0/stall_after", "/steps/0/last_model", "/steps/0/on_exhausted"]
        assert self.find_paths(make_step(stall_after=2, last_model="gpt-5", on_exhausted="accept_best")) == []
