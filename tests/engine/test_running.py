"""Running a flow from a script, with classes and functions as its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine.errors import FlowWarning, InputError, OutputError, PluginError, SpecError
from flows.engine.history import Severity
from flows.engine.openai_client import simulated_client
from flows.engine.planner import EndReason, EndStatus
from flows.engine.plugins import Registry
from flows.engine.plugins import registry as shared_registry
from flows.engine.result import RunResult
from flows.engine.running import run_flow
from flows.engine.simulated_model import Fault, FaultKind, SimulatedModel
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from tests.engine.builders import NOON, FakeClock, closed, make_flow, make_step
from tests.engine.executions import LONG, SHORT, simulate

LENGTH = AuditSpec(name="Length", rule="size(output.text) > 5")
FLOW = make_flow(make_step(1, audits=(LENGTH,)), make_step(2, audits=(LENGTH,)))
INPUT = {"topic": "tea"}


async def run(
    flow: FlowSpec = FLOW, input: Any = INPUT, app: SimulatedModel | None = None, **options: Any
) -> RunResult:
    app = app or simulate(tool_1=[SHORT, LONG], tool_2=[LONG])
    return await run_flow(flow, input, client=simulated_client(app), **options)


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of the decorators, with nothing in it."""
    for kind in ("output_types", "audits", "functions"):
        monkeypatch.setattr(shared_registry, kind, {})
    return shared_registry


class Text(BaseModel):
    text: str


class ShortText(Text):
    def audit(self) -> list[str]:
        return [f"{self.text} is long."] if len(self.text) > 5 else []


class Scored(Text):
    score: int


class TestResult:
    async def test_a_failed_run_names_the_attempt_that_decided_it_and_has_no_final_output(self) -> None:
        result = await run(app=simulate(tool_1=[SHORT]))
        assert (result.status, result.blocking, result.passed) == (EndStatus.FAILED, (1, 4), False)
        assert (len(result.all_issues(Severity.CRITICAL)), len(result.final_issues())) == (4, 1)
        assert len(result.results) == 2, "the second step never began"
        with pytest.raises(OutputError) as caught:
            result.output_as(Text)
        assert result.sentence in str(caught.value)
        assert result.step(1).output_as(Text) == Text(**SHORT)

    async def test_what_does_not_fit_or_is_not_there_is_said(self) -> None:
        result = await run(make_flow(make_step(1)), app=simulate(tool_1=[LONG]))
        with pytest.raises(OutputError, match=r"step 1 “Step 1” is not a valid Scored\. .*score.* is missing"):
            result.output_as(Scored)
        result = await run(make_flow(make_step(1)), app=simulate(tool_1=[Fault(FaultKind.REFUSAL)]))
        with pytest.raises(OutputError, match="Step 1 “Step 1” has no output"):
            result.step(1).output_as(Text)


def make_limit(length: int) -> Callable[..., bool]:
    def check(output: Text) -> bool:
        return len(output.text) <= length

    return check


class TestObjects:
    """Classes and functions as parts of a flow, with or without a registry."""

    @staticmethod
    def make_flow(*rules: Any, **fields: Any) -> FlowSpec:
        audits = tuple(AuditSpec(name=f"Rule {number}", rule=rule) for number, rule in enumerate(rules))
        return make_flow(StepSpec(name="Write", output_type=ShortText, audits=audits, **fields))

    async def test_a_flow_runs_with_the_class_and_the_functions_themselves(self) -> None:
        def shorten(value: Any) -> Any:
            return {"text": value["text"].rstrip(".")}

        def count(previous: Any) -> Any:
            return {"size": len(previous["text"])}

        flow = self.make_flow(make_limit(4), output_sanitizer=shorten)
        flow = flow.model_copy(update={"steps": (*flow.steps, make_step(2, compute=count))})
        result = await run(flow, app=simulate(short_text=[LONG, {"text": "Teas."}, SHORT]), registry=Registry())
        issues = [[issue.audit for issue in attempt.issues] for attempt in result.step(1).attempts]
        assert (issues, result.output) == ([["short_text", "Rule 0"], []], {"size": 4})
        assert result.step(1).attempts[0].plugins.keys() == {"short_text", "python:check", "python:shorten"}

    async def test_names_that_several_functions_of_a_flow_have_are_numbered(self) -> None:
        fits = make_limit(5)
        flow = self.make_flow(fits, make_limit(2), fits, max_retries=0)
        names = ["python:check", "python:check_2", "python:check"]
        assert [audit["rule"] for audit in flow.to_document()["steps"][0]["audits"]] == names
        result = await run(flow, app=simulate(short_text=[SHORT]), registry=Registry())
        (attempt,) = result.step(1).attempts
        assert [issue.audit for issue in attempt.issues] == ["Rule 1"]
        assert attempt.plugins.keys() == {"short_text", *names}
        # A step of one flow starts afresh in another, with its own function.
        step = flow.steps[0].model_copy(update={"audits": flow.steps[0].audits[1:2]})
        other = make_flow(step)
        assert [audit.rule for audit in other.steps[0].audits] == [names[0]]
        assert not (await run(other, app=simulate(short_text=[SHORT]), registry=Registry())).passed

    async def test_names_that_several_classes_of_a_flow_have_are_numbered(self) -> None:
        other = type("ShortText", (ShortText,), {"audit": lambda self: "Never."})
        classes = {"a": ShortText, "b": other}
        flow = make_flow(*(StepSpec(name=name, output_type=kind, tool_name=name) for name, kind in classes.items()))
        assert [step.output_type for step in flow.steps] == ["short_text", "short_text_2"]
        result = await run(flow, app=simulate(a=[SHORT], b=[SHORT]))
        assert [step.passed for step in result.steps] == [True, True, False]

    def test_what_is_registered_keeps_its_name_which_no_other_may_take(self, empty_registry: Registry) -> None:
        empty_registry.output_type("tea")(ShortText)
        empty_registry.audit("limit")(limit := make_limit(5))
        empty_registry.audit("check_2")(registered := make_limit(1))
        (step,) = self.make_flow(limit, make_limit(5), make_limit(2), registered, tool_name="write").steps
        rules = [audit.rule.removeprefix("python:") for audit in step.audits]
        assert (step.output_type, step.tool_name, rules) == ("tea", "write", ["limit", "check", "check_3", "check_2"])
        empty_registry.audit("check")(make_limit(5))
        with pytest.raises(PluginError, match="“check” is registered for"):
            self.make_flow(make_limit(2))


class TestBeforeACall:
    PRICED = closed(price={"type": "number"}, count={"type": "integer"})

    @pytest.mark.parametrize(
        ("input", "paths"),
        [
            ({"price": "cheap", "count": 1.5}, {"/price", "/count"}),
            ([1], {""}),
            (None, {""}),
            ({"price": float("nan"), "count": 1}, {"/price"}),
            ({"price": 1, "count": 1, "text": "a\0"}, {"/text"}),
            ({"price": object(), "count": 1}, {""}),
        ],
        ids=["schema", "list", "nothing", "NaN", "NUL", "object"],
    )
    async def test_an_input_that_does_not_fit_is_refused_with_its_path(self, input: Any, paths: set[str]) -> None:
        app = simulate()
        with pytest.raises(InputError) as caught:
            await run(make_flow(make_step(1), input_schema=self.PRICED), input, app)
        assert ({problem.path for problem in caught.value.problems}, app.call_count) == (paths, 0)

    async def test_a_flow_that_cannot_run_or_is_most_likely_not_meant_is_said(self) -> None:
        app, broken = simulate(), make_step(1, output_type="unknown", output_schema=None)
        with pytest.raises(SpecError) as caught:
            await run(make_flow(broken), app=app, registry=Registry())
        assert [problem.path for problem in caught.value.problems] == ["/steps/0/output_type"]
        with pytest.raises(FlowWarning, match="/steps/0/include_results: "):  # warnings are errors in tests
            await run(make_flow(make_step(1, include_results=(0,))), app=app)
        assert app.call_count == 0


class TestDefaults:
    @pytest.mark.parametrize(("window", "waited"), [(None, 60), (5, 5), (0, 0)])
    async def test_calls_are_repeated_for_a_minute_unless_the_step_says_otherwise(
        self, window: int | None, waited: int
    ) -> None:
        clock, app = FakeClock(), simulate(tool_1=[Fault(FaultKind.SERVER_ERROR)])
        result = await run(make_flow(make_step(1, retry_window=window)), app=app, clock=clock)
        assert (result.reason, (clock.now() - NOON).total_seconds()) == (EndReason.PROVIDER_ERROR, waited)
