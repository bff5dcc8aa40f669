"""What is refused when a flow is saved: in Python, and beside the table ``tests/contract/golden/bad_flows.yaml``."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine.errors import SpecError
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings
from flows.engine.spec_check import check_spec, prepare_spec
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step


class Report(BaseModel):
    title: str
    pages: int


class Scores(BaseModel):
    by_name: dict[str, int]


def check(*steps: Any, registry: Registry | None = None, **fields: Any) -> dict[str, str]:
    """The problems of a flow, by their pointers."""
    found: dict[str, str] = {}
    for problem in check_spec(make_flow(*steps, **fields), registry or Registry()):
        found[problem.path] = f"{found[problem.path]} {problem.message}" if problem.path in found else problem.message
    return found


def audit(name: str = "Length", rule: str = "true", **fields: Any) -> AuditSpec:
    return AuditSpec(name=name, rule=rule, **fields)


class TestGoodFlows:
    def test_nothing_is_wrong_with_them(self) -> None:
        registry = Registry()
        registry.output_type("report")(Report)
        registry.audit("polite")(lambda output, input, steps: True)
        registry.function("tidy")(lambda value: value)
        assert (
            check(
                make_step(
                    1, output_sanitizer="python:tidy", audits=(audit(rule="python:polite", message="item.text"),)
                ),
                make_step(2, include_results=(0, 1), input_expression="{'text': previous.text}"),
                make_step(3, compute="{'all': steps.map(s, s.output)}"),
                make_step(4, output_type="report", output_schema=None, pass_expression="size(issues) < 3"),
                registry=registry,
                input_schema={"type": "object", "properties": {"topic": {"type": "string"}}},
            )
            == {}
        )

    def test_a_document_and_back_is_the_same_flow(self) -> None:
        flow = make_flow(make_step(1, audits=(audit(severity="low"),), include_results=(0,)), model="gpt-4.1")
        assert FlowSpec.from_document(flow.to_document()) == flow


class TestExpressions:
    @pytest.mark.parametrize(
        "field",
        [
            "compute",
            "input_expression",
            "input_sanitizer",
            "output_sanitizer",
            "pass_expression",
            "failure_reason_expression",
        ],
    )
    def test_every_field_of_a_step_is_checked(self, field: str) -> None:
        for text in ("{'a': ", "nobody.knows", "unheard_of(1)", "python:missing"):
            problems = check(make_step(1), make_step(2, **{field: text}))
            assert f"/steps/1/{field}" in problems, text

    @pytest.mark.parametrize("field", ["rule", "message", "suggestions", "path"])
    def test_every_field_of_an_audit_is_checked(self, field: str) -> None:
        for text in ("{'a': ", "nobody.knows", "unheard_of(1)", "python:missing"):
            audits = (audit("Good"), AuditSpec.model_validate({"name": "Bad", "rule": "true", field: text}))
            assert check(make_step(audits=audits)).keys() == {f"/steps/0/audits/1/{field}"}, text


class TestPythonNames:
    def test_an_unregistered_function_is_told_with_those_that_are_registered(self) -> None:
        registry = Registry()
        registry.function("tidy")(lambda value: value)
        registry.function("clean")(lambda value: value)
        problems = check(make_step(output_sanitizer="python:tidi"), registry=registry)
        assert problems == {
            "/steps/0/output_sanitizer": "No function is registered as “tidi”. Registered: clean, tidy."
        }

    def test_audits_and_functions_are_kept_apart(self) -> None:
        registry = Registry()
        registry.function("one")(lambda: True)
        registry.audit("other")(lambda: True)
        problems = check(
            make_step(audits=(audit(rule="python:one"),), pass_expression="python:other"), registry=registry
        )
        assert problems == {
            "/steps/0/audits/0/rule": "No audit is registered as “one”. Registered: other.",
            "/steps/0/pass_expression": "No function is registered as “other”. Registered: one.",
        }

    def test_a_function_that_wants_what_is_not_on_offer_is_refused(self) -> None:
        registry = Registry()
        registry.audit("greedy")(lambda output, previous, limit=3: True)
        registry.function("greedy")(lambda issues, output, input: True)
        problems = check(
            make_step(audits=(audit(rule="python:greedy"),), pass_expression="python:greedy"), registry=registry
        )
        assert problems == {
            "/steps/0/audits/0/rule": "“python:greedy” wants the parameter “previous”, which is not on offer here. "
            "Available: input, output, steps.",
            "/steps/0/pass_expression": "“python:greedy” wants the parameter “input”, which is not on offer here. "
            "Available: issues, output.",
        }

    def test_one_that_takes_whatever_there_is_is_fine(self) -> None:
        registry = Registry()
        registry.audit("any")(lambda limit=3, **variables: True)
        assert check(make_step(audits=(audit(rule="python:any"),)), registry=registry) == {}


class TestSchemas:
    @pytest.mark.parametrize("field", ["output_schema", "input_schema"])
    @pytest.mark.parametrize("kind", ["deep", "circular", "NaN", "object", "NUL", "surrogate"])
    def test_whatever_stands_in_a_schema_is_told_and_never_a_crash(self, field: str, kind: str) -> None:
        schema: dict[str, Any] = {**TEXT_SCHEMA, "properties": {"text": {"type": "string"}}}
        text = schema["properties"]["text"]
        if kind == "deep":
            for _ in range(300):
                schema = {**schema, "properties": {"text": schema}}
        elif kind == "circular":
            schema["properties"]["text"] = schema
        else:
            text["const"] = {"NaN": float("nan"), "object": object(), "NUL": "a\0", "surrogate": "\ud800"}[kind]
        if field == "output_schema":
            assert check(make_step(output_schema=schema)).keys() == {"/steps/0/output_schema"}
        else:
            assert check(input_schema=schema).keys() == {"/input_schema"}


def test_a_type_that_strict_mode_cannot_express_is_refused_with_the_place_in_it() -> None:
    registry = Registry()
    registry.output_type("scores")(Scores)
    (message,) = check(make_step(output_type="scores", output_schema=None), registry=registry).values()
    assert message.startswith("The type “scores”, /properties/by_name")


def test_all_problems_of_a_flow_come_together() -> None:
    steps = (
        make_step(1, tool_name="draft", include_results=(1,), audits=(audit(rule="output."),)),
        make_step(2, tool_name="draft", input_expression="python:missing"),
        make_step(3, output_schema={"type": "array"}),
        make_step(4, output_type="missing"),
    )
    with pytest.raises(SpecError) as caught:
        prepare_spec(
            make_flow(*steps, input_schema={"type": "array"}),
            registry=Registry(),
            defaults=ModelSettings(model="gpt-4.1"),
        )
    assert {problem.path for problem in caught.value.problems} >= {
        "/input_schema/type",
        "/steps/0/tool_name",
        "/steps/1/tool_name",
        "/steps/0/include_results/0",
        "/steps/0/audits/0/rule",
        "/steps/1/input_expression",
        "/steps/2/output_schema/type",
        "/steps/3/output_type",
    }
    assert str(caught.value).count("\n") == len(caught.value.problems) - 1, "one line each"
