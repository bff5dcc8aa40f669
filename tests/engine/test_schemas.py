"""Schemas of outputs and inputs, and values that are held against them."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import InputError, SpecError
from flows.engine.history import Severity
from flows.engine.schemas import MAX_VIOLATIONS, check_input_schema, compile_schema
from tests.engine.builders import INVOICE, closed

DEFINITIONS = {
    "circle": closed(kind={"type": "string", "const": "c"}, radius={"type": "number"}),
    "square": closed(kind={"type": "string", "const": "s"}, side={"type": "number"}),
}


class TestValidateOutput:
    def test_an_output_that_fits_has_no_issues(self) -> None:
        output = {"supplier": "A", "total": 1, "lines": [{"text": "x", "amount": 1}]}
        assert compile_schema(INVOICE).validate_output(output) == ()

    def test_every_violation_is_a_critical_issue_with_its_path(self) -> None:
        output = {"total": -1, "lines": [{"text": 5, "amount": 1, "extra/part": 1}]}
        issues = compile_schema(INVOICE).validate_output(output)
        assert {(issue.path, issue.description) for issue in issues} == {
            ("", "`supplier` is missing."),
            ("/total", "`total`: the value is less than the minimum of 0; got -1."),
            ("/lines/0/text", '`lines[0].text`: the value is not of type "string"; got 5.'),
            ("/lines/0/extra~1part", "`lines[0].extra/part` is not expected; leave it out."),
        }
        assert {(issue.code, issue.severity) for issue in issues} == {("schema_mismatch", Severity.CRITICAL)}

    def test_thousands_of_violations_become_a_few_issues(self) -> None:
        schema = closed(items={"type": "array", "items": {"type": "string"}})
        issues = compile_schema(schema).validate_output({"items": list(range(5_000))})
        codes = [issue.code for issue in issues]
        assert codes == ["schema_mismatch"] * MAX_VIOLATIONS + ["more_schema_mismatches"]

    def test_a_huge_value_is_quoted_only_in_part(self) -> None:
        (issue,) = compile_schema(closed(a={"type": "number"})).validate_output({"a": "x" * 1_000_000})
        assert len(issue.description) < 300

    @pytest.mark.parametrize(
        ("schema", "value", "path", "word"),
        [
            ({"type": "string", "pattern": "^#"}, "zz", "/x", "^#"),
            ({"type": "string", "enum": ["a", "b"]}, "c", "/x", "“c”"),
            ({"type": ["string", "null"]}, 1.5, "/x", "string"),
            ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "/x", "string"),
            ({"anyOf": [closed(), closed(y={"type": "null"})]}, {"z": 1}, "/x", "anyOf"),
            ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3, "/x", "oneOf"),
            ({"type": "array", "contains": {"const": 1}}, [2], "/x", ""),
            ({"not": {"$ref": "#/$defs/circle"}}, {"kind": "c", "radius": 1}, "/x", "not"),
            ({"allOf": [{"properties": {"y": {"type": "string"}}}]}, {"y": 1}, "/x/y", ""),
            ({"if": {"required": ["y"]}, "then": {"properties": {"y": {"minimum": 2}}}}, {"y": 1}, "/x/y", ""),
            ({"patternProperties": {"^y": {"type": "string"}}, "additionalProperties": False}, {"y": 1}, "/x/y", ""),
            ({"patternProperties": {"^y": {"type": "string"}}, "additionalProperties": False}, {"z": 1}, "/x", "z"),
            ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1, "b"], "/x/2", ""),
            ({"anyOf": [closed(y={"type": "string"}), {"type": "null"}]}, {"y": 1}, "/x/y", ""),
            ({"anyOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/square"}]}, {"kind": "s"}, "/x", "x.side"),
            ({"anyOf": [{"$ref": "#/$defs/circle"}, {"type": "string"}]}, {"kind": "c", "radius": ""}, "/x/radius", ""),
        ],
    )
    def test_a_violation_is_told_where_it_is(self, schema: dict[str, Any], value: Any, path: str, word: str) -> None:
        whole = {"type": "object", "properties": {"x": schema}, "$defs": DEFINITIONS}
        (issue,) = compile_schema(whole).validate_output({"x": value})
        assert issue.path == path and word in issue.description

    @pytest.mark.parametrize("value", ["\ud800", {1: 2}, object(), float("nan"), 10**400, [[]] * 3, None])
    def test_a_value_that_is_no_json_is_an_issue_and_no_crash(self, value: Any) -> None:
        assert compile_schema(closed(a={"type": "string", "pattern": "^x"})).validate_output({"a": value})

    def test_a_pattern_that_would_take_for_ever_is_given_up(self) -> None:
        schema = closed(a={"type": "string", "pattern": r"(.*)*\1x"})
        assert compile_schema(schema).validate_output({"a": "a" * 5_000})

    @pytest.mark.parametrize("constant", [1, 1.0, True])
    def test_schemas_that_only_look_equal_are_not_taken_for_each_other(self, constant: Any) -> None:
        schemas = [compile_schema(closed(a={"const": one})) for one in (1, 1.0, True)]
        assert repr(compile_schema(closed(a={"const": constant})).schema) in map(repr, (one.schema for one in schemas))
        assert len({repr(one.schema) for one in schemas}) == 3


class TestInputs:
    def test_an_input_that_does_not_fit_is_refused_with_the_path_of_each_violation(self) -> None:
        with pytest.raises(InputError) as refusal:
            compile_schema(INVOICE).validate_input({"supplier": 1, "total": "x", "lines": []})
        assert {problem.path for problem in refusal.value.problems} == {"/supplier", "/total", "/lines"}

    @pytest.mark.parametrize("ref", ["https://example.com/schema", "file:///etc/hostname", "//example.com"])
    def test_no_schema_makes_the_server_fetch_anything(self, ref: str) -> None:
        # The guard of the test suite lets no connection through: a fetch would raise.
        (problem,) = check_input_schema({"type": "object", "properties": {"a": {"$ref": ref}}})
        assert problem.path == "/properties/a/$ref" and "nothing else is fetched" in problem.message

    def test_an_input_schema_need_not_be_strict(self) -> None:
        assert check_input_schema({"type": "object", "properties": {"a": {"type": "string", "minLength": 3}}}) == []

    def test_what_is_no_schema_is_not_compiled(self) -> None:
        with pytest.raises(SpecError):
            compile_schema({"type": "objekt"})


NODE = closed(weight={"type": "number"}, parts={"type": "array", "items": {"$ref": "#/$defs/node"}})
CIRCLE = closed(kind={"type": "string", "const": "circle"}, size={"type": "number"})
COUNT = closed(kind={"type": "string", "const": "count"}, size={"type": "integer"})
LIST_OF = {"type": "array", "items": {"anyOf": [CIRCLE, COUNT, {"type": "null"}]}}


class TestNumbers:
    @pytest.mark.parametrize(
        ("schema", "value", "coerced"),
        [
            ({"type": "number"}, 5, 5.0),
            ({"type": "integer"}, 3.0, 3),
            ({"type": ["number", "null"]}, 2, 2.0),
            ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 1, 1.0),
            ({"type": "array", "items": {"type": "number"}}, [1, 2.5], [1.0, 2.5]),
            (LIST_OF, [{"kind": "circle", "size": 2}, None], [{"kind": "circle", "size": 2.0}, None]),
            (LIST_OF, [{"kind": "count", "size": 2.0}], [{"kind": "count", "size": 2}]),
            (
                {"$ref": "#/$defs/node"},
                {"weight": 1, "parts": [{"weight": 2, "parts": []}]},
                {"weight": 1.0, "parts": [{"weight": 2.0, "parts": []}]},
            ),
        ],
    )
    def test_a_number_becomes_what_the_schema_names(self, schema: dict[str, Any], value: Any, coerced: Any) -> None:
        whole = {**closed(x=schema), "$defs": {"node": NODE}}
        assert repr(compile_schema(whole).coerce_numbers({"x": value})) == repr({"x": coerced})

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            ({"type": "number"}, 5.0),
            ({"type": "number"}, 2**60 + 1),
            ({"type": "number"}, True),
            ({"type": "number"}, "3"),
            ({"type": "integer"}, 3.5),
            ({"type": ["integer", "number"]}, 2.0),
            ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, 1),
            ({"type": "array", "items": {"type": "integer"}}, "none"),
            (LIST_OF, [{"kind": "count", "size": 2}, {"kind": "cube", "size": 2}]),
        ],
    )
    def test_where_nothing_changes_the_same_object_comes_back(self, schema: dict[str, Any], value: Any) -> None:
        whole = {"x": value}
        assert compile_schema(closed(x=schema)).coerce_numbers(whole) is whole
