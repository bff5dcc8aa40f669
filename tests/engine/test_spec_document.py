"""Reading a flow from a document: which fields are refused, and where."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import SpecError
from flows.engine.spec import FlowSpec
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step

GOOD_STEP: dict[str, Any] = {"name": "Draft", "tool_name": "draft", "output_schema": TEXT_SCHEMA}


def read(document: Any) -> dict[str, str]:
    """What is refused when a document is read, by pointers."""
    with pytest.raises(SpecError) as caught:
        FlowSpec.from_document(document)
    return {problem.path: problem.message for problem in caught.value.problems}


def read_step(**fields: Any) -> dict[str, str]:
    return read({"name": "example", "steps": [{**GOOD_STEP, **fields}]})


class TestFields:
    @pytest.mark.parametrize("retries", [-1, 101, 1.5, "3", True, None])
    def test_a_number_of_retries_must_be_one(self, retries: Any) -> None:
        problems = read_step(max_retries=retries)
        assert list(problems) == ["/steps/0/max_retries"]
        assert "“max_retries”" in problems["/steps/0/max_retries"]

    def test_a_negative_one_is_told_what_is_allowed(self) -> None:
        message = read_step(max_retries=-1)["/steps/0/max_retries"]
        assert message == "“max_retries”: Input should be greater than or equal to 0, got '-1'."

    @pytest.mark.parametrize("index", [True, "1", 1.0, 1.5, None])
    def test_results_are_included_by_integers_only(self, index: Any) -> None:
        problems = read_step(include_results=[0, index])
        assert list(problems) == ["/steps/0/include_results/1"]
        assert problems["/steps/0/include_results/1"].startswith("“include_results”: ")

    @pytest.mark.parametrize("value", [1, "results", {"0": 1}, None])
    def test_included_results_are_a_list(self, value: Any) -> None:
        assert read_step(include_results=value).keys() == {"/steps/0/include_results"}

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("stop_on_failure", "yes"),
            ("tool_name", "draft text"),
            ("tool_name", "x" * 65),
            ("name", ""),
            ("name", "x" * 101),
            ("temperature", 3),
            ("temperature", float("nan")),
            ("max_tokens", 0),
            ("issue_severity_filter", "urgent"),
            ("output_schema", []),
            ("pass_expression", ""),
            ("compute", "x" * 4_001),
        ],
    )
    def test_other_fields_have_their_bounds_too(self, field: str, value: Any) -> None:
        problems = read_step(**{field: value})
        assert list(problems) == [f"/steps/0/{field}"]
        assert f"“{field}”" in problems[f"/steps/0/{field}"]

    @pytest.mark.parametrize("name", ["", "My flow", "UPPER", "-x", "a--b", "x" * 101, 7, None])
    def test_the_name_of_a_flow_is_fit_for_an_address(self, name: Any) -> None:
        assert read({"name": name, "steps": [GOOD_STEP]}).keys() == {"/name"}

    def test_unknown_fields_are_refused_by_name(self) -> None:
        assert read_step(retries=3) == {"/steps/0/retries": "Unknown field “retries”."}

    def test_missing_fields_are_named(self) -> None:
        assert read({"steps": [{}]}) == {"/name": "“name” is missing.", "/steps/0/name": "“name” is missing."}

    @pytest.mark.parametrize("steps", [[], None, {}, "steps"])
    def test_a_flow_needs_a_list_of_steps(self, steps: Any) -> None:
        assert read({"name": "example", "steps": steps}).keys() == {"/steps"}

    def test_more_than_50_steps_are_too_many(self) -> None:
        steps = [{"name": f"s{number}", "compute": "{}"} for number in range(51)]
        assert read({"name": "example", "steps": steps}).keys() == {"/steps"}

    @pytest.mark.parametrize("document", [None, [], "flow", 7])
    def test_what_is_no_object_is_no_flow(self, document: Any) -> None:
        assert "“document” must be an object" in read(document)[""]

    def test_all_that_is_wrong_is_told_at_once_and_nothing_else(self) -> None:
        document = {
            "name": "My flow",
            "colour": "red",
            "steps": [
                {**GOOD_STEP, "max_retries": -1},
                {"tool_name": "b c", "audits": [{"name": "Length", "rule": ""}, {"rule": "true", "fail_at": "grave"}]},
            ],
        }
        assert read(document).keys() == {
            "/name",
            "/colour",
            "/steps/0/max_retries",
            "/steps/1/name",
            "/steps/1/tool_name",
            "/steps/1/audits/0/rule",
            "/steps/1/audits/1/name",
            "/steps/1/audits/1/fail_at",
        }


def test_the_digest_is_that_of_the_document_also_after_its_schema_was_changed() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    spec = make_flow(make_step(output_schema=schema))
    before = spec.digest
    schema["properties"]["text"] = {"type": "string"}
    assert spec.digest != before
    assert spec.digest == FlowSpec.from_document(spec.to_document()).digest
