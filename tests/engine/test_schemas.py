"""Schemas of outputs and inputs, and values that are held against them."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import InputError, SpecError
from flows.engine.history import Severity
from flows.engine.schemas import MAX_VIOLATIONS, check_input_schema, compile_schema
from tests.engine.builders import INVOICE, closed


class TestValidateOutput:
    def test_an_output_that_fits_has_no_issues(self) -> None:
        output = {"supplier": "A", "total": 1, "lines": [{"text": "x", "amount": 1}]}
        assert compile_schema(INVOICE).validate_output(output) == ()

    def test_every_violation_is_a_critical_issue_with_its_path(self) -> None:
        output = {"total": -1, "lines": [{"text": 5, "amount": 1, "extra/part": 1}]}
        issues = compile_schema(INVOICE).validate_output(output)
        assert {(issue.path, issue.description) for issue in issues} == {
            ("", "`supplier` is missing."),
            ("/total", "`total` must be at least 0, got -1."),
            ("/lines/0/text", "`lines[0].text` must be text, got an integer: 5."),
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
        ("schema", "value", "says"),
        [
            ({"type": "string", "pattern": "^#"}, "zz", "must match the pattern “^#”, got “zz”."),
            ({"type": "string", "format": "date"}, "soon", "must be a valid date, got “soon”."),
            ({"type": "string", "enum": ["a", "b"]}, "c", "must be one of “a”, “b”, got “c”."),
            ({"enum": list(range(20))}, 99, "must be one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 …, got 99."),
            ({"type": "string", "const": "a"}, "c", "must be “a”, got “c”."),
            (
                {"type": "array", "items": {"type": "string"}, "minItems": 2},
                ["a"],
                "must have at least 2 elements, got 1.",
            ),
            ({"type": "array", "items": {}, "uniqueItems": True}, [1, 1], "must not hold the same element twice."),
            ({"type": "string", "minLength": 3}, "ab", "must have at least 3 characters, got 2."),
            ({"type": ["string", "null"]}, 1.5, "must be null or text, got a number: 1.5."),
            ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "must be null or text, got an integer: 1."),
            ({"anyOf": [closed(), closed(y={"type": "null"})]}, {"z": 1}, "fits none of the 2 forms it may have, got"),
            (
                {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
                3,
                "fits more than one of the 2 forms; it must fit one.",
            ),
            ({"type": "integer", "multipleOf": 5}, 7, "must be a multiple of 5, got 7."),
            ({"type": "array", "contains": {"const": 1}}, [2], "breaks the rule “contains” of the schema"),
            ({"not": {"type": "string"}}, "a", "breaks the rule “not” of the schema, got the text “a”."),
            ({"propertyNames": {"pattern": "^x"}}, {"y": 1}, "breaks the rule “propertyNames” of the schema"),
        ],
    )
    def test_a_violation_is_told_in_plain_words(self, schema: dict[str, Any], value: Any, says: str) -> None:
        (issue,) = compile_schema({"type": "object", "properties": {"x": schema}}).validate_output({"x": value})
        assert issue.path == "/x" and issue.description.startswith(f"`x` {says}")

    @pytest.mark.parametrize(
        ("schema", "value", "path"),
        [
            ({"allOf": [{"properties": {"y": {"type": "string"}}}]}, {"y": 1}, "/x/y"),
            ({"if": {"required": ["y"]}, "then": {"properties": {"y": {"minimum": 2}}}}, {"y": 1}, "/x/y"),
            ({"dependentSchemas": {"y": {"properties": {"z": False}}}}, {"y": 1, "z": 1}, "/x/z"),
            (
                {"patternProperties": {"^y": {"type": "string"}}, "additionalProperties": False},
                {"y": 1, "ya": ""},
                "/x/y",
            ),
            ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1, "b"], "/x/2"),
            ({"anyOf": [closed(y={"type": "string"}), {"type": "null"}]}, {"y": 1}, "/x/y"),
            (
                {"anyOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/square"}]},
                {"kind": "s", "side": "x"},
                "/x/side",
            ),
        ],
    )
    def test_a_violation_is_found_where_it_is(self, schema: dict[str, Any], value: Any, path: str) -> None:
        definitions = {
            "circle": closed(kind={"type": "string", "const": "c"}, radius={"type": "number"}),
            "square": closed(kind={"type": "string", "const": "s"}, side={"type": "number"}),
        }
        whole = {"type": "object", "properties": {"x": schema}, "$defs": definitions}
        (issue,) = compile_schema(whole).validate_output({"x": value})
        assert issue.path == path

    @pytest.mark.parametrize("value", ["\ud800", {1: 2}, object(), float("nan"), 10**400, [[]] * 3, None])
    def test_a_value_that_is_no_json_is_an_issue_and_no_crash(self, value: Any) -> None:
        assert compile_schema(closed(a={"type": "string", "pattern": "^x"})).validate_output({"a": value})

    def test_a_pattern_that_would_take_for_ever_is_given_up(self) -> None:
        schema = closed(a={"type": "string", "pattern": r"(.*)*\1x"})
        assert compile_schema(schema).validate_output({"a": "a" * 5_000})

    @pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), ("a", "b")])
    def test_schemas_that_only_look_equal_are_not_taken_for_each_other(self, one: Any, other: Any) -> None:
        for constant in (one, other):
            (issue,) = compile_schema(closed(a={"const": constant})).validate_output({"a": "x"})
            assert f" must be {str(constant).lower() if constant is True else constant}" in issue.description.replace(
                "“", ""
            )


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
