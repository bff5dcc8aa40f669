"""When a step is over, which attempt counts, and who is asked last: against a plain reference, and case by case."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine import AuditSpec, FlowSpec, ModelSettings, Registry, check_spec
from flows.engine.history import Attempt, History, Outcome, Severity
from flows.engine.planner import Action, Call, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.providers import Provider, Providers
from flows.engine.settling import find_called_step, find_step_final
from flows.engine.spec import OnExhausted, StepSpec
from tests.conftest import IS_LONG
from tests.engine.builders import make_attempt, make_flow, make_history, make_issue, make_step
from tests.engine.executions import LENGTH, LONG, SHORT, execute, simulate

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
