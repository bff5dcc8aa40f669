"""The form that an input schema asks for: nothing typed is lost, nothing is read as what it isn't."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import Problem
from runs.pages.input_form import (
    InputField,
    bind_fields,
    build_fields,
    can_show,
    format_texts,
    parse_texts,
    walk_fields,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ticket", "count", "urgent", "tags", "customer", "channel"],
    "properties": {
        "ticket": {"type": "string", "description": "What the customer wrote"},
        "reference": {"type": "string", "maxLength": 20, "title": "Our reference"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "score": {"type": ["number", "null"]},
        "urgent": {"type": "boolean"},
        "known": {"type": "boolean"},
        "channel": {"type": "string", "enum": ["mail", "phone"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "weights": {"type": "array", "items": {"type": "number"}},
        "customer": {"$ref": "#/$defs/customer"},
        "rows": {"type": "array", "items": {"type": "object"}},
    },
    "$defs": {
        "customer": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "maxLength": 80}, "a/b": {"type": "string", "maxLength": 9}},
        }
    },
}
FIELDS = build_fields(SCHEMA)
INPUT: dict[str, Any] = {
    "ticket": "Where is\nmy order?",
    "count": 3,
    "score": 0.5,
    "urgent": True,
    "channel": "phone",
    "tags": ["late", "angry"],
    "weights": [1.0, 2],
    "customer": {"name": "Ada", "a/b": "x"},
    "rows": [{"a": 1}],
}
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEFT_OUT = "left out"


def property_field(schema: Any, *, required: bool = True) -> InputField:
    (field,) = build_fields({"properties": {"a": schema}, "required": ["a"] if required else []})
    return field


def read_text(schema: dict[str, Any], text: str, *, required: bool = True) -> tuple[Any, list[Problem]]:
    field = property_field(schema, required=required)
    value, problems = parse_texts([field], {field.name: text})
    return value.get("a", LEFT_OUT), problems


class TestFields:
    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "properties": {"x": {"type": "string"}}},
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"type": ["string", "null"]}},
            True,
        ],
        ids=["object", "any keys", "any of", "nullable items", "anything"],
    )
    def test_what_no_field_can_hold_is_left_to_json(self, schema: Any) -> None:
        field = property_field(schema, required=False)
        assert field.kind == ("group" if field.children else "json")
        assert can_show([field], {}) and can_show([field], {"a": {"x": "y"}})

    def test_an_optional_object_that_would_have_to_hold_something_can_be_left_out(self) -> None:
        author = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
        assert read_text(author, "", required=False) == (LEFT_OUT, [])
        assert property_field(author).kind == "group"

    def test_a_schema_that_refers_to_itself_ends_as_json(self) -> None:
        tree = {"type": "object", "required": ["child"], "properties": {"child": {"$ref": "#/$defs/tree"}}}
        fields = walk_fields(build_fields({**tree, "$defs": {"tree": tree}}))
        assert [field.kind for field in fields] == ["group", "group", "group", "json"]

    def test_a_schema_without_properties_or_with_too_many_gets_no_form(self) -> None:
        many = {"properties": {f"p{number}": {"type": "string"} for number in range(200)}}
        for schema in (None, {}, {"type": "string"}, {"type": "object"}, many):
            assert build_fields(schema) == ()


class TestRoundTrip:
    @pytest.mark.parametrize(
        "change",
        [
            {"unknown": 1},
            {"count": True},
            {"urgent": "yes"},
            {"reference": "two\nlines"},
            {"ticket": "carriage\r\nreturn"},
            {"tags": ["with\nbreak"]},
            {"tags": ["", "blank"]},
            {"customer": None},
            {"ticket": "half a character: \ud83d"},
        ],
        ids=repr,
    )
    def test_an_input_that_fields_would_change_is_not_shown_in_them(self, change: dict[str, Any]) -> None:
        assert not can_show(FIELDS, INPUT | change)

    @given(
        st.fixed_dictionaries(
            {
                "ticket": st.text(),
                "count": st.integers(),
                "urgent": st.booleans(),
                "tags": st.lists(st.text(max_size=3), max_size=3),
                "channel": st.sampled_from(["mail", "phone", "fax"]),
                "customer": st.fixed_dictionaries({"name": st.text()}, optional={"a/b": st.text()}),
            },
            optional={
                "reference": st.text(),
                "score": st.none() | NUMBERS,
                "known": st.booleans(),
                "weights": st.lists(NUMBERS, max_size=3),
                "rows": st.lists(st.dictionaries(st.text(), st.text())),
                "other": st.text(),
            },
        )
    )
    def test_showing_an_input_in_fields_never_changes_it_silently(self, value: dict[str, Any]) -> None:
        if can_show(FIELDS, value):
            again, _ = parse_texts(FIELDS, format_texts(FIELDS, value))
            assert json.dumps(again, sort_keys=True) == json.dumps(value, sort_keys=True)


class TestReading:
    @pytest.mark.parametrize(
        ("schema", "text", "value"),
        [
            ({"type": "integer"}, " 12 ", 12),
            ({"type": "number"}, "-1.5e3", -1500.0),
            ({"type": "string"}, " spaces stay ", " spaces stay "),
            ({"enum": ["1", 1, None]}, "1", 1),
            ({"enum": ["1", 1, None]}, '"1"', "1"),
            ({"enum": ["1", 1, None]}, "null", None),
            ({"type": "array", "items": {"type": "integer"}}, "1\n\n 2\n", [1, 2]),
            ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ],
    )
    def test_texts_become_values_of_the_type_that_is_asked_for(
        self, schema: dict[str, Any], text: str, value: Any
    ) -> None:
        result, problems = read_text(schema, text)
        assert (type(result), result, problems) == (type(value), value, [])

    @pytest.mark.parametrize(
        ("schema", "text", "path"),
        [
            ({"type": "number"}, "1,5", "/a"),
            ({"type": "integer"}, "true", "/a"),
            ({"type": "number"}, "1e999", "/a"),
            ({"type": "array", "items": {"type": "integer"}}, "1\nx", "/a/1"),
            ({"type": "object"}, '{"a" 1}', "/a"),
            ({"type": "integer"}, "", "/a"),
            ({"enum": ["x"]}, "", "/a"),
            ({"type": "string"}, " ", "/a"),
        ],
    )
    def test_what_can_not_be_read_gets_a_sentence_at_its_path(
        self, schema: dict[str, Any], text: str, path: str
    ) -> None:
        _, (problem,) = read_text(schema, text)
        assert problem.path == path and problem.message

    @pytest.mark.parametrize(
        ("schema", "required", "value"),
        [
            ({"type": "string"}, False, LEFT_OUT),
            ({"type": ["string", "null"]}, True, None),
            ({"type": "integer"}, False, LEFT_OUT),
            ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, True, None),
            ({"type": "array", "items": {"type": "string"}}, True, []),
            ({"type": "array", "items": {"type": "string"}}, False, LEFT_OUT),
            ({"type": "boolean"}, False, LEFT_OUT),
        ],
    )
    def test_an_empty_field_means_what_the_schema_allows(
        self, schema: dict[str, Any], required: bool, value: Any
    ) -> None:
        assert read_text(schema, "", required=required) == (value, [])

    def test_an_unticked_box_is_false_and_what_can_not_be_read_stays_as_it_was_typed(self) -> None:
        assert parse_texts([property_field({"type": "boolean"})], {}) == ({"a": False}, [])
        assert read_text({"type": "number"}, "1,5")[0] == "1,5"

    def test_problems_stand_at_the_innermost_field_around_their_path_and_are_listed_in_the_order_of_the_page(
        self,
    ) -> None:
        problems = [Problem("/customer/name", "One."), Problem("/tags/1", "Two."), Problem("/nowhere", "Three.")]
        fields = build_fields(SCHEMA)
        summary = bind_fields(fields, {"input/ticket": "typed"}, problems)
        by_pointer = {one.pointer: one for one in walk_fields(fields)}
        found = {pointer: one.problems for pointer, one in by_pointer.items() if one.problems}
        assert found == {"/tags": ["Two."], "/customer/name": ["One."]}
        assert by_pointer["/ticket"].text == "typed"
        assert summary == [
            ("", "/nowhere", "Three."),
            (by_pointer["/tags"].id, "Tags", "Two."),
            (by_pointer["/customer/name"].id, "Name", "One."),
        ]
