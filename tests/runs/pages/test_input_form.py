"""The form that an input schema asks for: nothing typed is lost, nothing is read as what it isn't."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import Problem
from runs.pages.input_fields import InputField, build_fields, default_input, example_input, walk_fields
from runs.pages.input_form import bind_fields, can_show, read_value, write_texts

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

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)

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


def fields_by_pointer(schema: dict[str, Any]) -> dict[str, InputField]:
    return {field.pointer: field for field in walk_fields(build_fields(schema))}


def property_field(schema: dict[str, Any], *, required: bool = True) -> InputField:
    (field,) = build_fields({"properties": {"a": schema}, "required": ["a"] if required else []})
    return field


def read_text(schema: dict[str, Any], text: str, *, required: bool = True) -> tuple[Any, list[Problem]]:
    field = property_field(schema, required=required)
    value, problems = read_value([field], {field.name: text})
    return value.get("a", "left out"), problems


class TestFields:
    def test_each_kind_of_schema_gets_its_kind_of_field(self) -> None:
        kinds = {pointer: field.kind for pointer, field in fields_by_pointer(SCHEMA).items()}
        assert kinds == {
            "/ticket": "long",
            "/reference": "text",
            "/count": "number",
            "/score": "number",
            "/urgent": "check",
            "/known": "choice",
            "/channel": "choice",
            "/tags": "lines",
            "/weights": "lines",
            "/customer": "group",
            "/customer/name": "text",
            "/customer/a~1b": "text",
            "/rows": "json",
        }

    def test_labels_and_help_say_what_the_schema_says(self) -> None:
        fields = fields_by_pointer(SCHEMA)
        assert fields["/reference"].label == "Our reference"
        assert fields["/ticket"].help == "What the customer wrote."
        assert fields["/count"].help == "1 to 9."
        assert fields["/tags"].help == "One per line, 1 to 3 lines."

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "properties": {"x": {"type": "string"}}},
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"type": ["string", "null"]}},
            {},
            True,
        ],
    )
    def test_what_no_field_can_hold_is_left_to_json(self, schema: Any) -> None:
        field = property_field(schema, required=False)
        assert field.kind == ("group" if field.children else "json")
        assert can_show([field], {}) and can_show([field], {"a": {"x": "y"}})

    def test_a_schema_that_refers_to_itself_ends_as_json(self) -> None:
        tree = {"type": "object", "required": ["child"], "properties": {"child": {"$ref": "#/$defs/tree"}}}
        fields = fields_by_pointer({**tree, "$defs": {"tree": tree}})
        assert [field.kind for field in fields.values()] == ["group", "group", "group", "json"]

    @pytest.mark.parametrize(
        "schema",
        [
            None,
            {},
            {"type": "string"},
            {"type": "object"},
            {"properties": {f"p{number}": {"type": "string"} for number in range(200)}},
        ],
    )
    def test_a_schema_without_properties_or_with_too_many_gets_no_form(self, schema: dict[str, Any] | None) -> None:
        assert build_fields(schema) == ()

    def test_defaults_and_the_first_example_can_be_filled_in(self) -> None:
        schema = {"properties": {"a": {"default": 1}, "b": {}}, "examples": [{"a": 2, "b": 3}]}
        assert default_input(schema) == {"a": 1}
        assert example_input(schema) == {"a": 2, "b": 3}
        assert default_input(None) == {}
        assert example_input({"examples": "none"}) is None


class TestRoundTrip:
    def test_an_earlier_input_is_filled_in_and_read_back_unchanged(self) -> None:
        fields = build_fields(SCHEMA)
        assert can_show(fields, INPUT)
        assert read_value(fields, write_texts(fields, INPUT)) == (INPUT, [])

    def test_browsers_send_line_breaks_their_own_way(self) -> None:
        fields = build_fields(SCHEMA)
        texts = {name: text.replace("\n", "\r\n") for name, text in write_texts(fields, INPUT).items()}
        assert read_value(fields, texts) == (INPUT, [])

    @pytest.mark.parametrize(
        "change",
        [
            {"unknown": 1},
            {"count": "three"},
            {"count": True},
            {"urgent": "yes"},
            {"reference": "two\nlines"},
            {"ticket": "carriage\r\nreturn"},
            {"ticket": None},
            {"tags": ["with\nbreak"]},
            {"tags": ["", "blank"]},
            {"tags": [1]},
            {"customer": None},
            {"score": None},
            {"ticket": "half a character: \ud83d"},
        ],
    )
    def test_an_input_that_fields_would_change_is_not_shown_in_them(self, change: dict[str, Any]) -> None:
        assert not can_show(build_fields(SCHEMA), INPUT | change)

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
        fields = build_fields(SCHEMA)
        if can_show(fields, value):
            again, problems = read_value(fields, write_texts(fields, value))
            assert problems == []
            assert json.dumps(again, sort_keys=True) == json.dumps(value, sort_keys=True)


class TestReading:
    @pytest.mark.parametrize(
        ("schema", "text", "value"),
        [
            ({"type": "integer"}, " 12 ", 12),
            ({"type": "number"}, "-1.5e3", -1500.0),
            ({"type": "number"}, "+2", 2),
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
        assert problems == []
        assert (type(result), result) == (type(value), value)

    @pytest.mark.parametrize(
        ("schema", "text", "path", "words"),
        [
            ({"type": "number"}, "1,5", "/a", "“1,5” is not a number; write it like 1.5."),
            ({"type": "integer"}, "true", "/a", "“true” is not a whole number; write it like 12."),
            ({"type": "number"}, "1e999", "/a", "is not a number"),
            ({"type": "array", "items": {"type": "integer"}}, "1\nx", "/a/1", "Line 2: “x” is not a whole number"),
            ({"type": "object"}, '{"a" 1}', "/a", "Line 1, column 6: Expecting ':' delimiter."),
            ({"type": "integer"}, "", "/a", "Give a number."),
            ({"enum": ["x"]}, "", "/a", "Choose one."),
            ({"type": "object"}, " ", "/a", "Give a JSON value."),
        ],
    )
    def test_what_can_not_be_read_gets_a_sentence_and_its_path(
        self, schema: dict[str, Any], text: str, path: str, words: str
    ) -> None:
        _, (problem,) = read_text(schema, text)
        assert problem.path == path
        assert words in problem.message

    def test_what_can_not_be_read_stays_as_it_was_typed(self) -> None:
        value, _ = read_text({"type": "number"}, "1,5")
        assert value == "1,5"

    @pytest.mark.parametrize(
        ("schema", "required", "value"),
        [
            ({"type": "string"}, False, "left out"),
            ({"type": "string"}, True, ""),
            ({"type": ["string", "null"]}, True, None),
            ({"type": "integer"}, False, "left out"),
            ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, True, None),
            ({"type": "array", "items": {"type": "string"}}, True, []),
            ({"type": "array", "items": {"type": "string"}}, False, "left out"),
            ({"type": "boolean"}, False, "left out"),
        ],
    )
    def test_an_empty_field_means_what_the_schema_allows(
        self, schema: dict[str, Any], required: bool, value: Any
    ) -> None:
        assert read_text(schema, "", required=required) == (value, [])

    def test_an_unticked_box_is_false(self) -> None:
        field = property_field({"type": "boolean"})
        assert read_value([field], {}) == ({"a": False}, [])


class TestProblems:
    def test_problems_stand_at_the_innermost_field_around_their_path(self) -> None:
        fields = build_fields(SCHEMA)
        problems = [Problem("/tags/1", "One."), Problem("/customer/name", "Two."), Problem("/nowhere", "Three.")]
        bound, placed = bind_fields(fields, {}, problems)
        by_pointer = {one.field.pointer: one for top in bound for one in (top, *top.children)}
        assert by_pointer["/tags"].problems == (problems[0],)
        assert by_pointer["/customer/name"].problems == (problems[1],)
        assert by_pointer["/customer"].problems == ()
        assert [one.field_id for one in placed] == [by_pointer["/tags"].id, by_pointer["/customer/name"].id, ""]
