"""Schemas of outputs and inputs."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from flows.engine.errors import InputError, SpecError
from flows.engine.issues import Severity
from flows.engine.output_schema import (
    MOST_VIOLATIONS,
    build_type,
    check_input_schema,
    coerce_numbers,
    schema_of_type,
    validate_input,
    validate_output,
)
from flows.engine.strict_schema import check_strict
from tests.engine.builders import INVOICE, closed


class TestValidateOutput:
    def test_an_output_that_fits_has_no_issues(self) -> None:
        assert validate_output({"supplier": "A", "total": 1, "lines": [{"text": "x", "amount": 1}]}, INVOICE) == ()

    def test_every_violation_is_a_critical_issue_with_its_path(self) -> None:
        output = {"total": -1, "lines": [{"text": 5, "amount": 1, "extra/part": 1}], "supplier": "A"}
        issues = validate_output(output, INVOICE)
        assert {(issue.path, issue.description) for issue in issues} == {
            ("/total", "`total` must be at least 0, got -1."),
            ("/lines/0/text", "`lines[0].text` must be text, got an integer: 5."),
            ("/lines/0/extra~1part", "`lines[0].extra/part` is not expected; leave it out."),
        }
        assert {(issue.code, issue.severity) for issue in issues} == {("schema_mismatch", Severity.CRITICAL)}

    def test_a_missing_property_is_told_at_its_object(self) -> None:
        (issue,) = validate_output({"supplier": "A", "total": 1}, INVOICE)
        assert (issue.path, issue.description) == ("", "`lines` is missing.")

    def test_a_format_is_checked(self) -> None:
        (issue,) = validate_output({"day": "soon"}, closed(day={"type": "string", "format": "date"}))
        assert issue.description == "`day` must be a valid date, got “soon”."

    def test_thousands_of_violations_become_a_few_issues(self) -> None:
        schema = closed(items={"type": "array", "items": {"type": "string"}})
        issues = validate_output({"items": list(range(5_000))}, schema)
        assert len(issues) == MOST_VIOLATIONS + 1
        codes = [issue.code for issue in issues]
        assert codes == ["schema_mismatch"] * MOST_VIOLATIONS + ["more_schema_mismatches"]

    def test_a_huge_value_is_quoted_only_in_part(self) -> None:
        (issue,) = validate_output({"a": "x" * 1_000_000}, closed(a={"type": "number"}))
        assert len(issue.description) < 300

    @pytest.mark.parametrize(
        ("schema", "value", "says"),
        [
            ({"type": "string", "pattern": "^#"}, "zz", "`x` must match the pattern “^#”, got “zz”."),
            ({"type": "string", "enum": ["a", "b"]}, "c", "`x` must be one of “a”, “b”, got “c”."),
            ({"type": "string", "const": "a"}, "c", "`x` must be “a”, got “c”."),
            (
                {"type": "array", "items": {"type": "string"}, "minItems": 2},
                ["a"],
                "`x` must have at least 2 elements, got 1.",
            ),
            ({"type": "array", "items": {}, "uniqueItems": True}, [1, 1], "`x` must not hold the same element twice."),
            ({"type": "string", "minLength": 3}, "ab", "`x` must have at least 3 characters, got 2."),
            ({"type": ["string", "null"]}, 1.5, "`x` must be null or text, got a number: 1.5."),
            ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "`x` must be null or text, got an integer: 1."),
            (
                {"anyOf": [closed(y={"type": "string"}), {"type": "null"}]},
                {"y": 1},
                "`x.y` must be text, got an integer: 1.",
            ),
            ({"type": "integer"}, 1.5, "`x` must be an integer, got a number: 1.5."),
            ({"type": "integer", "multipleOf": 5}, 7, "`x` must be a multiple of 5, got 7."),
            ({"type": "array", "contains": {"const": 1}}, [2], "`x` breaks the rule “contains” of the schema"),
        ],
    )
    def test_a_violation_is_told_in_plain_words(self, schema: dict[str, Any], value: Any, says: str) -> None:
        (issue,) = validate_output({"x": value}, {"type": "object", "properties": {"x": schema}})
        assert issue.description.startswith(says)

    def test_of_several_kinds_of_object_the_one_that_was_meant_is_held_against(self) -> None:
        circle = closed(kind={"type": "string", "const": "circle"}, radius={"type": "number"})
        square = closed(kind={"type": "string", "const": "square"}, side={"type": "number"})
        (issue,) = validate_output(
            {"shape": {"kind": "square", "side": "x"}}, closed(shape={"anyOf": [circle, square]})
        )
        assert (issue.path, issue.description) == ("/shape/side", "`shape.side` must be a number, got the text “x”.")

    @pytest.mark.parametrize("value", ["\ud800", {1: 2}, object(), float("nan"), 10**400, [[]] * 3, None])
    def test_a_value_that_is_no_json_is_an_issue_and_no_crash(self, value: Any) -> None:
        assert validate_output({"a": value}, closed(a={"type": "string", "pattern": "^x"}))

    def test_a_pattern_that_would_take_for_ever_is_given_up(self) -> None:
        schema = closed(a={"type": "string", "pattern": r"(.*)*\1x"})
        assert validate_output({"a": "a" * 5_000}, schema)

    def test_the_same_place_in_a_new_schema_object_is_validated_by_the_new_schema(self) -> None:
        for kind, fits in (("string", True), ("number", False)) * 50:
            assert (validate_output({"a": "x"}, closed(a={"type": kind})) == ()) is fits


class TestInputs:
    def test_an_input_that_does_not_fit_is_refused_with_the_path_of_each_violation(self) -> None:
        with pytest.raises(InputError) as refusal:
            validate_input({"supplier": 1, "total": "x", "lines": []}, INVOICE)
        assert {problem.path for problem in refusal.value.problems} == {"/supplier", "/total", "/lines"}

    @pytest.mark.parametrize(
        ("schema", "path", "says"),
        [
            ({"type": "array"}, "/type", "JSON object"),
            ({"type": "objekt"}, "/type", "“type” must be object, array"),
            ([], "", "JSON object"),
            ({"type": "object", "properties": {"a": {"$ref": "http://example.com"}}}, "/properties/a/$ref", "within"),
        ],
    )
    def test_an_input_schema_that_makes_no_sense_is_refused(self, schema: Any, path: str, says: str) -> None:
        assert any(problem.path == path and says in problem.message for problem in check_input_schema(schema))

    def test_no_schema_makes_the_server_fetch_anything(self) -> None:
        # The guard of the test suite lets no connection through: a fetch would raise.
        for ref in ("https://example.com/schema", "file:///etc/hostname", "//example.com"):
            (problem,) = check_input_schema({"type": "object", "properties": {"a": {"$ref": ref}}})
            assert "nothing else is fetched" in problem.message
        assert check_input_schema({"type": "object", "$schema": "https://example.com/meta"})

    def test_an_input_schema_need_not_be_strict(self) -> None:
        assert check_input_schema({"type": "object", "properties": {"a": {"type": "string", "minLength": 3}}}) == []


class TestNumbers:
    SCHEMA = closed(
        price={"type": "number"},
        count={"type": "integer"},
        parts={"type": "array", "items": {"$ref": "#/$defs/part"}},
        maybe={"anyOf": [{"type": "number"}, {"type": "null"}]},
    ) | {"$defs": {"part": closed(weight={"type": ["number", "null"]})}}

    def test_a_number_becomes_a_float_and_an_integer_an_int(self) -> None:
        value = {"price": 5, "count": 3.0, "parts": [{"weight": 2}, {"weight": None}], "maybe": 1}
        coerced = coerce_numbers(value, self.SCHEMA)
        assert repr(coerced) == "{'price': 5.0, 'count': 3, 'parts': [{'weight': 2.0}, {'weight': None}], 'maybe': 1.0}"

    def test_nothing_is_copied_if_nothing_changes(self) -> None:
        value = {"price": 5.0, "count": 3, "parts": [{"weight": 2.0}], "maybe": None}
        assert coerce_numbers(value, self.SCHEMA) is value

    def test_what_a_float_can_not_hold_stays_as_it_is(self) -> None:
        assert coerce_numbers({"price": 2**60 + 1}, self.SCHEMA) == {"price": 2**60 + 1}

    def test_numbers_are_found_in_the_kind_of_object_that_was_meant(self) -> None:
        circle = closed(kind={"type": "string", "const": "circle"}, size={"type": "number"})
        count = closed(kind={"type": "string", "const": "count"}, size={"type": "integer"})
        schema = closed(items={"type": "array", "items": {"anyOf": [circle, count, {"type": "null"}]}})
        value = {"items": [{"kind": "circle", "size": 2}, {"kind": "count", "size": 2.0}, None]}
        assert repr(coerce_numbers(value, schema)["items"]) == (
            "[{'kind': 'circle', 'size': 2.0}, {'kind': 'count', 'size': 2}, None]"
        )

    def test_numbers_are_found_in_recursive_schemas(self) -> None:
        node = closed(weight={"type": "number"}, parts={"type": "array", "items": {"$ref": "#/$defs/node"}})
        schema = {**closed(root={"$ref": "#/$defs/node"}), "$defs": {"node": node}}
        value = {"root": {"weight": 1, "parts": [{"weight": 2, "parts": []}]}}
        assert repr(coerce_numbers(value, schema)) == (
            "{'root': {'weight': 1.0, 'parts': [{'weight': 2.0, 'parts': []}]}}"
        )

    def test_where_a_number_and_an_integer_are_allowed_the_value_says_what_it_is(self) -> None:
        schema = closed(a={"anyOf": [{"type": "integer"}, {"type": "number"}]}, b={"type": ["integer", "number"]})
        value = {"a": 1, "b": 2.0}
        assert coerce_numbers(value, schema) is value

    def test_what_does_not_fit_is_left_to_validation(self) -> None:
        value = {"price": "five", "count": 3.5, "parts": "none", "maybe": True}
        assert coerce_numbers(value, self.SCHEMA) == value


class Colour(BaseModel):
    name: str
    hex: str = Field(pattern="^#[0-9a-f]{6}$")
    role: Literal["primary", "secondary"] = "primary"

    @field_validator("name")
    @classmethod
    def refuse_beige(cls, name: str) -> str:
        if name == "beige":
            raise ValueError("beige is no colour")
        if name == "crash":
            raise RuntimeError("broken validator")
        return name


class Palette(BaseModel):
    colours: list[Colour]


class Visit(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    place: tuple[str, str]


class Choice(BaseModel):
    value: int | Tree


class Free(BaseModel):
    notes: dict[str, str]


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class TestPydanticTypes:
    @pytest.mark.parametrize("model", [Palette, Tree])
    def test_a_type_becomes_a_strict_schema(self, model: type[BaseModel]) -> None:
        assert check_strict(schema_of_type(model)) == []

    def test_a_type_that_strict_mode_can_not_express_is_refused(self) -> None:
        with pytest.raises(SpecError, match="additionalProperties"):
            schema_of_type(Free)

    def test_a_field_with_a_default_is_required_and_not_null(self) -> None:
        role = schema_of_type(Colour)["properties"]["role"]
        assert validate_output({"name": "a", "hex": "#000000", "role": None}, schema_of_type(Colour))
        assert "null" not in str(role)

    def test_an_output_becomes_a_typed_object(self) -> None:
        built, issues = build_type(Palette, {"colours": [{"name": "sky", "hex": "#0000ff", "role": "primary"}]})
        assert isinstance(built, Palette) and issues == ()

    def test_what_can_not_be_built_is_a_critical_issue_that_names_the_field(self) -> None:
        colours = [{"name": "beige", "hex": "#000000"}, {"name": "sky", "hex": "blue"}]
        built, issues = build_type(Palette, {"colours": colours})
        assert built is None
        assert [(issue.path, issue.severity) for issue in issues] == [
            ("/colours/0/name", Severity.CRITICAL),
            ("/colours/1/hex", Severity.CRITICAL),
        ]
        assert "beige is no colour" in issues[0].description

    def test_a_type_with_strict_fields_takes_the_json_form_of_dates_and_tuples(self) -> None:
        built, issues = build_type(Visit, {"day": "2030-01-31", "place": ["a", "b"]})
        assert (built, issues) == (Visit(day=date(2030, 1, 31), place=("a", "b")), ())

    def test_a_missing_field_is_told_at_its_object(self) -> None:
        _, issues = build_type(Palette, {"colours": [{"hex": "#000000"}]})
        assert [(issue.path, issue.description) for issue in issues] == [
            ("/colours/0", "`colours[0].name` is missing.")
        ]

    def test_a_branch_of_a_union_is_no_part_of_the_path(self) -> None:
        _, issues = build_type(Choice, {"value": {"name": 1}})
        assert {issue.path for issue in issues} == {"/value", "/value/name"}

    @pytest.mark.parametrize("value", [None, 5, [], "x", {"colours": float("nan")}, {"colours": object()}])
    def test_what_is_no_object_is_an_issue_and_no_crash(self, value: Any) -> None:
        built, issues = build_type(Palette, value)
        assert built is None and issues

    def test_a_validator_that_breaks_is_an_issue_and_no_crash(self) -> None:
        built, issues = build_type(Palette, {"colours": [{"name": "crash", "hex": "#000000"}]})
        assert built is None
        assert "RuntimeError: broken validator" in issues[0].description
