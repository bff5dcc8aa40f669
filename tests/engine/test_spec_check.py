"""What is refused when a flow is saved: everything at once, each with its place and what would be right."""

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

    def test_a_syntax_error_is_told_with_line_and_column(self) -> None:
        problems = check(make_step(pass_expression="size(issues) <\n  3 +"))
        assert problems["/steps/0/pass_expression"].startswith("Line 2, column ")

    def test_an_unknown_variable_is_named_beside_those_that_are_known(self) -> None:
        (message,) = check(make_step(audits=(audit(rule="outputs.text == 'x'"),))).values()
        assert "Unknown variable “outputs”" in message
        assert "input, output, steps" in message

    @pytest.mark.parametrize(
        ("field", "text"),
        [
            ("input_expression", "{'a': output}"),
            ("input_sanitizer", "input"),
            ("output_sanitizer", "output"),
            ("pass_expression", "input.a == 1"),
            ("failure_reason_expression", "output.text"),
            ("compute", "{'a': issues}"),
        ],
    )
    def test_a_variable_of_another_field_is_unknown(self, field: str, text: str) -> None:
        fields: dict[str, Any] = {field: text}
        (message,) = check(make_step(**fields)).values()
        assert message.startswith("Line 1, column ") and "Unknown variable" in message

    def test_item_is_known_to_messages_only(self) -> None:
        assert check(make_step(audits=(audit(message="item.text", path="item.p", suggestions="item.s"),))) == {}
        assert check(make_step(audits=(audit(rule="item == null"),))).keys() == {"/steps/0/audits/0/rule"}


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

    def test_one_that_takes_whatever_there_is_or_has_defaults_is_fine(self) -> None:
        registry = Registry()
        registry.audit("any")(lambda **variables: True)
        registry.audit("none")(lambda limit=3: True)
        audits = (audit("a", rule="python:any"), audit("b", rule="python:none"))
        assert check(make_step(audits=audits), registry=registry) == {}


class TestSteps:
    def test_two_steps_with_one_tool_name_are_both_named(self) -> None:
        problems = check(make_step(1, tool_name="draft"), make_step(2), make_step(3, tool_name="draft"))
        message = "Two steps have the tool name “draft”. Give each step its own."
        assert problems == {"/steps/0/tool_name": message, "/steps/2/tool_name": message}

    def test_a_step_and_a_flow_have_no_more_audits_than_the_editor_can_carry(self) -> None:
        audits = [{"name": f"a{number}", "rule": "true"} for number in range(51)]
        (problem,) = check_spec(make_flow(make_step(1, audits=audits)), Registry({}, {}, {}))
        assert problem.path == "/steps/0/audits"
        assert problem.message.startswith("A step has at most 50 audits, and these are 51.")
        many = make_flow(*(make_step(number, audits=audits[:50]) for number in range(1, 12)))
        (problem,) = check_spec(many, Registry({}, {}, {}))
        assert problem.path == "/steps" and "500" in problem.message and "550" in problem.message

    def test_two_steps_with_one_name_are_both_named(self) -> None:
        problems = check(make_step(1, name="Draft"), make_step(2, name="Draft"))
        assert problems.keys() == {"/steps/0/name", "/steps/1/name"}

    def test_two_audits_of_one_step_with_one_name_are_both_named(self) -> None:
        problems = check(make_step(1, audits=(audit("a"), audit("b"), audit("a"))), make_step(2, audits=(audit("a"),)))
        assert problems.keys() == {"/steps/0/audits/0/name", "/steps/0/audits/2/name"}

    def test_local_steps_need_no_tool_name_and_share_none(self) -> None:
        assert check(make_step(1, compute="{}"), make_step(2, compute="{}")) == {}

    def test_a_model_step_needs_a_tool_name_and_something_that_says_what_its_output_looks_like(self) -> None:
        problems = check(make_step(tool_name=None, output_schema=None))
        assert problems.keys() == {"/steps/0/tool_name", "/steps/0/output_schema"}
        assert "extract_invoice" in problems["/steps/0/tool_name"]
        assert "compute" in problems["/steps/0/output_schema"]

    @pytest.mark.parametrize(
        ("included", "allowed"),
        [(2, "0 (the input) to 1"), (3, "0 (the input) to 1"), (99, "0 (the input) to 1"), (-1, "0 (the input) to 1")],
    )
    def test_only_results_of_earlier_steps_can_be_included(self, included: int, allowed: str) -> None:
        problems = check(make_step(1), make_step(2, include_results=(1, included)), make_step(3))
        assert problems == {
            "/steps/1/include_results/1": f"Step 2 can't include the results of step {included}: "
            f"only steps before it, {allowed}."
        }

    def test_the_first_step_can_only_include_the_input(self) -> None:
        (message,) = check(make_step(include_results=(1,))).values()
        assert message.endswith("only steps before it, 0 (the input).")

    def test_a_step_is_included_once(self) -> None:
        problems = check(make_step(1), make_step(2, include_results=(1, 0, 1)))
        assert problems == {"/steps/1/include_results/2": "Step 1 is included twice. Name it once."}


class TestSchemas:
    def test_a_schema_outside_the_strict_subset_is_told_place_by_place(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "title": {"type": "string", "minLength": 3},
                "lines": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            },
            "required": ["title"],
            "additionalProperties": False,
        }
        problems = check(make_step(1), make_step(2, output_schema=schema))
        assert "/steps/1/output_schema/properties/title/minLength" in problems
        assert all(path.startswith("/steps/1/output_schema") for path in problems)
        assert any("lines" in path for path in problems)
        assert any("lines" in message for message in problems.values()), "not every property is required"

    def test_a_local_step_may_have_one_and_it_is_checked(self) -> None:
        assert check(make_step(compute="{}", output_schema=TEXT_SCHEMA)) == {}
        assert check(make_step(compute="{}", output_schema={"type": "array"})) != {}

    def test_an_input_schema_must_describe_an_object_and_may_be_any_other_schema(self) -> None:
        assert check(input_schema={"type": "object", "minProperties": 1}) == {}
        assert check(input_schema={"type": "string"}).keys() == {"/input_schema/type"}
        assert check(input_schema={"type": "object", "properties": {"a": {"type": "text"}}}).keys() == {
            "/input_schema/properties/a/type"
        }

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


class TestOutputTypes:
    def test_an_unregistered_type_is_told_with_those_that_are_registered(self) -> None:
        registry = Registry()
        registry.output_type("report")(Report)
        problems = check(make_step(output_type="raport", output_schema=None), registry=registry)
        assert problems == {"/steps/0/output_type": "No output type is registered as “raport”. Registered: report."}

    def test_it_is_refused_even_where_its_schema_is_frozen_already(self) -> None:
        assert check(make_step(output_type="report")).keys() == {"/steps/0/output_type"}

    def test_a_type_that_strict_mode_cannot_express_is_refused_with_the_place_in_it(self) -> None:
        registry = Registry()
        registry.output_type("scores")(Scores)
        (message,) = check(make_step(output_type="scores", output_schema=None), registry=registry).values()
        assert message.startswith("The type “scores”, /properties/by_name")


class TestCharacters:
    @pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
    def test_what_cannot_be_stored_is_refused_with_its_place(self, text: str) -> None:
        problems = check(make_step(1), make_step(2, system_message=text, description=text), title=text)
        assert problems.keys() == {"/title", "/steps/1/system_message", "/steps/1/description"}
        assert "NUL characters or lone surrogates" in problems["/title"]

    def test_text_that_only_speaks_of_them_is_fine(self) -> None:
        schema = {**TEXT_SCHEMA, "properties": {"text": {"type": "string", "pattern": r"^[^\u0000]*$"}}}
        assert check(make_step(system_message=r"Never write \u0000 or \ud800. 🍵", output_schema=schema)) == {}


class TestEverythingAtOnce:
    def test_all_problems_of_a_flow_come_together(self) -> None:
        steps = (
            make_step(1, tool_name="draft", include_results=(1,), audits=(audit(rule="output."),)),
            make_step(2, tool_name="draft", input_expression="python:missing", pass_expression="nobody"),
            make_step(3, output_schema={"type": "array"}),
            make_step(4, output_type="missing"),
        )
        flow = make_flow(*steps, input_schema={"type": "array"})
        with pytest.raises(SpecError) as caught:
            prepare_spec(flow, registry=Registry(), defaults=ModelSettings(model="gpt-4.1"))
        assert {problem.path for problem in caught.value.problems} >= {
            "/input_schema/type",
            "/steps/0/tool_name",
            "/steps/1/tool_name",
            "/steps/0/include_results/0",
            "/steps/0/audits/0/rule",
            "/steps/1/input_expression",
            "/steps/1/pass_expression",
            "/steps/2/output_schema/type",
            "/steps/3/output_type",
        }
        assert str(caught.value).count("\n") == len(caught.value.problems) - 1, "one line each"
