"""Running a flow from a script, in one call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from flows.engine.errors import FlowWarning, InputError, OutputError, PluginError, SpecError
from flows.engine.history import Severity, TokenUsage
from flows.engine.openai_client import simulated_client
from flows.engine.planner import EndReason, EndStatus
from flows.engine.plugins import Registry
from flows.engine.plugins import registry as shared_registry
from flows.engine.pricing import leave_free
from flows.engine.result import RunResult
from flows.engine.running import DEFAULT_MODEL, run_flow, run_flow_sync
from flows.engine.simulated_model import Fault, FaultKind, Script, SimulatedModel
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from tests.engine.builders import NOON, FakeClock, make_flow, make_step

SHORT, LONG = {"text": "Tea."}, {"text": "Tea is a drink."}
LENGTH = AuditSpec(name="Length", rule="size(output.text) > 5")
FLOW = make_flow(make_step(1, audits=(LENGTH,)), make_step(2, audits=(LENGTH,)))
INPUT = {"topic": "tea"}

PRICE_SCHEMA = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "count": {"type": "integer"}},
    "required": ["price", "count"],
}


def simulate(**replies: list[Any]) -> SimulatedModel:
    return SimulatedModel(script=Script(replies or {"tool_1": [SHORT, LONG], "tool_2": [LONG]}))


async def run(
    flow: FlowSpec = FLOW, input: Any = INPUT, app: SimulatedModel | None = None, **options: Any
) -> RunResult:
    return await run_flow(flow, input, client=simulated_client(app or simulate()), **options)


class TestResult:
    async def test_a_failed_run_names_the_attempt_that_decided_it(self) -> None:
        result = await run(app=simulate(tool_1=[SHORT]))
        assert (result.status, result.blocking, result.passed) == (EndStatus.FAILED, (1, 4), False)
        assert (len(result.all_issues(Severity.CRITICAL)), len(result.final_issues())) == (4, 1)
        assert len(result.results) == 2, "the second step never began"


class Text(BaseModel):
    text: str


class ShortText(Text):
    def audit(self) -> list[str]:
        return [f"{self.text} is long."] if len(self.text) > 5 else []


class Scored(Text):
    score: int


class TestTypedResult:
    async def test_the_final_output_and_that_of_a_step_are_built_as_the_type_that_is_asked_for(self) -> None:
        result = await run()
        assert result.output == LONG
        assert result.output_as(Text) == result.step(2).output_as(Text) == Text(**LONG)

    async def test_a_run_that_failed_has_no_final_output_and_its_step_still_has_its_own(self) -> None:
        result = await run(app=simulate(tool_1=[SHORT]))
        assert result.output is None
        with pytest.raises(OutputError) as caught:
            result.output_as(Text)
        assert result.sentence in str(caught.value)
        assert result.step(1).output_as(Text) == Text(**SHORT)

    async def test_what_does_not_fit_or_is_not_there_is_said(self) -> None:
        result = await run(make_flow(make_step(1)), app=simulate(tool_1=[LONG]))
        with pytest.raises(OutputError, match=r"step 1 “Step 1” is no Scored\. .*score.* is missing"):
            result.output_as(Scored)
        result = await run(make_flow(make_step(1)), app=simulate(tool_1=[Fault(FaultKind.REFUSAL)]))
        with pytest.raises(OutputError, match="Step 1 “Step 1” has no output"):
            result.step(1).output_as(Text)


def make_limit(length: int) -> Callable[..., bool]:
    def check(output: Text) -> bool:
        return len(output.text) <= length

    return check


def is_within(output: Any, limit: int) -> bool:
    return len(output.text) <= limit


class Limit:
    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, output: Any) -> bool:
        return len(output.text) <= self.length


@dataclass
class NoModel:
    text: str


class TestObjects:
    """Classes and functions that stand in a flow themselves, with or without a registry."""

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
        app = simulate(short_text=[LONG, {"text": "Teas."}, SHORT])
        result = await run(flow, app=app, registry=Registry())
        assert [[issue.audit for issue in attempt.issues] for attempt in result.step(1).attempts] == [
            ["short_text", "Rule 0"],
            [],
        ]
        assert result.output == {"size": 4}
        assert result.step(1).attempts[0].plugins.keys() == {"short_text", "python:check", "python:shorten"}

    async def test_each_flow_keeps_its_own_function_where_several_have_one_name(self) -> None:
        flows = [self.make_flow(make_limit(length)) for length in (2, 5)]
        results = [await run(flow, app=simulate(short_text=[SHORT])) for flow in flows]
        assert [result.passed for result in results] == [False, True]
        assert flows[0].digest == flows[1].digest

    @pytest.mark.parametrize(
        ("fits", "fails", "name"),
        [
            (lambda output: len(output.text) < 5, lambda output: len(output.text) < 4, "lambda"),
            (make_limit(5), make_limit(2), "check"),
            (partial(is_within, limit=5), partial(is_within, limit=2), "is_within"),
            (Limit(5), Limit(2), "limit"),
        ],
        ids=["lambdas", "results of a factory", "partial functions", "callable objects"],
    )
    async def test_names_that_several_functions_of_a_flow_have_are_numbered(
        self, fits: Any, fails: Any, name: str
    ) -> None:
        flow = self.make_flow(fits, fails, fits, max_retries=0)
        names = [f"python:{name}", f"python:{name}_2", f"python:{name}"]
        assert [audit.rule for audit in flow.steps[0].audits] == names
        assert [audit["rule"] for audit in flow.to_document()["steps"][0]["audits"]] == names
        assert flow.digest == self.make_flow(fits, fails, fits, max_retries=0).digest
        result = await run(flow, app=simulate(short_text=[SHORT]), registry=Registry())
        (attempt,) = result.step(1).attempts
        assert [issue.audit for issue in attempt.issues] == ["Rule 1"]
        assert attempt.plugins.keys() == {"short_text", *names}
        # A step of one flow starts afresh in another.
        step = flow.steps[0].model_copy(update={"audits": flow.steps[0].audits[1:2]})
        assert [audit.rule for audit in make_flow(step).steps[0].audits] == [names[0]]

    async def test_names_that_several_classes_of_a_flow_have_are_numbered(self) -> None:
        other = type("ShortText", (ShortText,), {"audit": lambda self: "Never."})
        steps = [
            StepSpec(name=name, output_type=kind, tool_name=name) for name, kind in (("a", ShortText), ("b", other))
        ]
        flow = make_flow(*steps)
        assert [step.output_type for step in flow.steps] == ["short_text", "short_text_2"]
        result = await run(flow, app=simulate(a=[SHORT], b=[SHORT]))
        assert [step.passed for step in result.steps] == [True, True, False]
        assert [list(step.attempts[0].plugins) for step in result.steps[1:]] == [["short_text"], ["short_text_2"]]

    def test_a_numbered_name_is_no_registered_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared_registry, "functions", {})
        monkeypatch.setattr(shared_registry, "audits", {})
        shared_registry.audit("check_2")(registered := make_limit(1))
        flow = self.make_flow(make_limit(5), make_limit(2), registered)
        assert [audit.rule for audit in flow.steps[0].audits] == ["python:check", "python:check_3", "python:check_2"]

    @pytest.mark.parametrize("thing", [NoModel, list[ShortText], int, {"type": "object"}, 5])
    def test_what_is_no_output_type_is_refused(self, thing: Any) -> None:
        with pytest.raises(ValidationError, match=r"output_type\n.*valid string"):
            StepSpec(name="Write", output_type=thing)

    @pytest.mark.parametrize("thing", [ShortText, int, True])
    def test_what_is_no_rule_is_refused(self, thing: Any) -> None:
        with pytest.raises(ValidationError, match=r"rule\n.*valid string"):
            AuditSpec(name="Length", rule=thing)

    def test_a_tool_that_cannot_be_named_after_its_class_needs_a_name(self) -> None:
        omega = type("Ωμέγα", (ShortText,), {})
        with pytest.raises(PluginError, match="Give the step a tool_name"):
            StepSpec(name="Write", output_type=omega)
        assert StepSpec(name="Write", output_type=omega, tool_name="omega").output_type == "ωμέγα"

    def test_a_document_holds_the_names(self) -> None:
        flow = self.make_flow(make_limit(5))
        (step,) = flow.to_document()["steps"]
        assert (step["output_type"], step["tool_name"]) == ("short_text", "short_text")
        assert step["audits"] == [{"name": "Rule 0", "rule": "python:check"}]
        assert FlowSpec.from_document(json.loads(json.dumps(flow.to_document()))).digest == flow.digest

    def test_what_is_registered_keeps_its_name_which_no_other_may_take(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for kind in ("output_types", "audits"):
            monkeypatch.setattr(shared_registry, kind, {})
        shared_registry.output_type("tea")(ShortText)
        shared_registry.audit("limit")(limit := make_limit(5))
        (step,) = self.make_flow(limit, tool_name="write").steps
        assert (step.output_type, step.tool_name, step.audits[0].rule) == ("tea", "write", "python:limit")
        shared_registry.audit("check")(make_limit(5))
        with pytest.raises(PluginError, match="“check” is registered for"):
            self.make_flow(make_limit(2))


async def test_what_is_most_likely_not_meant_is_said_before_a_call_is_paid() -> None:
    flow, app = make_flow(make_step(1, include_results=(0,))), simulate()
    with pytest.raises(FlowWarning, match="/steps/0/include_results: "):  # warnings are errors in tests
        await run(flow, app=app)
    assert app.call_count == 0


class TestPrices:
    async def test_costs_are_those_of_the_price_list_by_default(self) -> None:
        usage = (await run()).usage
        assert usage is not None and usage.cost is not None and usage.cost > 0
        assert usage.unpriced == 0

    async def test_other_prices_can_be_given(self) -> None:
        def price(model: str, usage: TokenUsage, **_: Any) -> TokenUsage:
            return usage.model_copy(update={"cost": Decimal("0.25")})

        usage = (await run(price=price)).usage
        assert usage is not None and usage.cost == Decimal("0.75")


async def test_without_settings_there_is_a_default_model() -> None:
    app = SimulatedModel()
    await run(make_flow(make_step(model=None)), app=app)
    assert [call.body["model"] for call in app.calls] == [DEFAULT_MODEL]


class TestInput:
    PRICED = make_flow(make_step(1), input_schema=PRICE_SCHEMA)

    async def test_what_the_caller_does_with_it_changes_nothing_that_is_kept(self) -> None:
        registry, given = Registry(), {"topics": ["tea"]}
        registry.audit("meddle")(lambda output: given["topics"].append("coffee"))
        audit = AuditSpec(name="Meddle", rule="python:meddle")
        app = simulate(tool_1=[LONG], tool_2=[LONG])
        result = await run(
            make_flow(make_step(1, audits=(audit,)), make_step(2, input_expression="input")),
            given,
            app,
            registry=registry,
        )
        assert given == {"topics": ["tea", "coffee"]}
        assert result.initial_input == {"topics": ["tea"]}
        assert json.loads(app.calls[-1].body["messages"][-1]["content"]) == {"topics": ["tea"]}

    async def test_an_input_that_does_not_fit_is_refused_with_its_path_before_anything_is_called(self) -> None:
        app = simulate()
        with pytest.raises(InputError) as caught:
            await run(self.PRICED, {"price": "cheap", "count": 1.5}, app)
        assert {problem.path for problem in caught.value.problems} == {"/price", "/count"}
        assert app.call_count == 0

    @pytest.mark.parametrize(
        ("input", "words"),
        [
            ([1], "The input must be a JSON object, got a list."),
            ("tea", "The input must be a JSON object, got text."),
            (None, "The input must be a JSON object, got null."),
            ({"ratio": float("nan")}, "/ratio: NaN can't be stored"),
            ({"text": "a\0"}, "/text: Characters that can't be stored"),
            ({"thing": object()}, "/thing: a value of type “object” has no JSON form."),
        ],
        ids=["list", "text", "nothing", "NaN", "NUL", "object"],
    )
    async def test_what_is_no_json_object_is_refused(self, input: Any, words: str) -> None:
        with pytest.raises(InputError) as caught:
            await run(input=input)
        assert words in str(caught.value)

    async def test_numbers_become_what_the_input_schema_calls_them_before_an_expression_sees_them(self) -> None:
        compute = "{'total': input.price * 2.0, 'items': input.count * 2, 'first': steps[0].output.price + 0.5}"
        flow = make_flow(make_step(compute=compute), input_schema=PRICE_SCHEMA)
        result = await run(flow, {"price": 3, "count": 4.0})
        assert result.passed
        assert result.step(1).output == {"total": 6.0, "items": 8, "first": 3.5}
        assert [type(value) for value in result.initial_input.values()] == [float, int]


class TestSpec:
    async def test_a_flow_that_cannot_run_is_refused_before_anything_is_called(self) -> None:
        app = simulate()
        flow = make_flow(
            make_step(1, output_type="unknown", output_schema=None), make_step(2, input_expression="python:unknown")
        )
        with pytest.raises(SpecError) as caught:
            await run(flow, app=app, registry=Registry())
        assert [problem.path for problem in caught.value.problems] == [
            "/steps/0/output_type",
            "/steps/1/input_expression",
        ]
        assert app.call_count == 0

    async def test_what_the_decorators_registered_is_known_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared_registry, "audits", {})
        shared_registry.audit("polite")(lambda output: "please" in output["text"])
        flow = make_flow(make_step(1, audits=(AuditSpec(name="Polite", rule="python:polite"),)))
        result = await run(flow, app=simulate(tool_1=[SHORT, {"text": "Tea, please."}]))
        assert [attempt.passed for attempt in result.step(1).attempts] == [False, True]


class TestParts:
    @pytest.mark.parametrize(("window", "waited"), [(None, 60), (5, 5), (0, 0)])
    async def test_calls_are_repeated_for_a_minute_unless_the_step_says_otherwise(
        self, window: int | None, waited: int
    ) -> None:
        clock = FakeClock()
        flow = make_flow(make_step(1, retry_window=window))
        result = await run(flow, app=simulate(tool_1=[Fault(FaultKind.SERVER_ERROR)]), clock=clock)
        assert result.reason is EndReason.PROVIDER_ERROR
        assert (clock.now() - NOON).total_seconds() == waited

    async def test_every_run_has_an_id_of_its_own(self) -> None:
        app = simulate()
        await run(app=app)
        await run(app=app)
        keys = [str(call.idempotency_key) for call in app.calls]
        assert len({key.split("-")[1] for key in keys}) == 2

    def test_it_runs_without_an_event_loop_too(self) -> None:
        result = run_flow_sync(
            FLOW, INPUT, client=simulated_client(simulate()), price=leave_free, include_all_attempts=False
        )
        assert result.passed
        assert [len(attempts) for attempts in result.results] == [1, 1, 1]
