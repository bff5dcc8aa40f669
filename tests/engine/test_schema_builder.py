"""Schemas made from an example, which take it and which strict mode takes; and schemas shown as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import SpecError
from flows.engine.schema_builder import MAX_FIELDS, MAX_NOTES, SchemaRow, build_schema_from_example, list_rows
from flows.engine.schemas import check_input_schema, compile_schema
from flows.engine.spec import MAX_SCHEMA_BYTES
from flows.engine.strict_schema import check_strict
from tests.engine.builders import closed

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NAMES = TEXT | st.sampled_from(["$ref", "$defs", "$id", "properties", "enum", "examples", "type", "a", "b"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=15
)
EXAMPLES = st.dictionaries(NAMES, VALUES, max_size=5)


def fill_gaps(value: Any, schema: dict[str, Any]) -> Any:
    """The value, with null for the properties that its schema requires and it lacks."""
    kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
    for branch in schema.get("anyOf", [schema]):
        if kind == "object" and "object" in branch["type"]:
            return {name: fill_gaps(value.get(name), child) for name, child in branch["properties"].items()}
        if kind == "array" and "array" in branch["type"]:
            return [fill_gaps(item, branch["items"]) for item in value]
    return value


class TestFromAnExample:
    @pytest.mark.parametrize(
        ("value", "schema", "notes"),
        [
            ("Nordwind", {"type": "string"}, 0),
            (3, {"type": "integer"}, 0),
            (3.0, {"type": "number"}, 0),
            (True, {"type": "boolean"}, 0),
            ({"a": 1}, closed(a={"type": "integer"}), 0),
            ([1, 2.5], {"type": "array", "items": {"type": "number"}}, 0),
            (["a", None], {"type": "array", "items": {"type": ["string", "null"]}}, 0),
            (
                [{"a": 1}, {"a": None}, None],
                {"type": "array", "items": closed(a={"type": ["integer", "null"]}) | {"type": ["object", "null"]}},
                0,
            ),
            (
                [1, {"a": 1}, None],
                {"type": "array", "items": {"anyOf": [{"type": ["integer", "null"]}, closed(a={"type": "integer"})]}},
                0,
            ),
            ([[], [1]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, 0),
            ([], {"type": "array", "items": {"type": "string"}}, 1),
            (None, {"type": ["string", "null"]}, 1),
            ({}, closed(), 1),
            (
                [{"a": 1}, {"a": 2, "b": 3}],
                {"type": "array", "items": closed(a={"type": "integer"}, b={"type": ["integer", "null"]})},
                1,
            ),
        ],
    )
    def test_a_value_shows_its_type_and_what_it_leaves_open_is_noted(
        self, value: Any, schema: dict[str, Any], notes: int
    ) -> None:
        built = build_schema_from_example({"it": value})
        assert (built.schema, len(built.notes)) == (closed(it=schema), notes)

    def test_a_note_names_its_place(self) -> None:
        notes = build_schema_from_example({"order": {"rows": [{"tags": []}]}}).notes
        assert notes[0].startswith("`order.rows[].tags` is an empty list")

    def test_of_many_notes_the_number_is_reported(self) -> None:
        notes = build_schema_from_example({f"field_{index}": None for index in range(MAX_NOTES + 5)}).notes
        assert (len(notes), notes[-1]) == (MAX_NOTES + 1, "5 more places were left open.")

    def test_properties_stay_in_the_order_of_the_example(self) -> None:
        schema = build_schema_from_example({"zip": "20457", "city": "Hamburg", "at": 1}).schema
        assert list(schema["properties"]) == schema["required"] == ["zip", "city", "at"]

    def test_an_input_keeps_its_example_and_may_leave_out_what_only_some_elements_have(self) -> None:
        example = {"rows": [{"a": 1}, {"a": 2, "b": 3}]}
        schema = build_schema_from_example(example, for_input=True).schema
        rows = schema["properties"]["rows"]["items"]
        assert (rows["required"], rows["properties"]["b"], schema["examples"]) == (
            ["a"],
            {"type": "integer"},
            [example],
        )

    def test_an_example_that_is_too_large_is_not_kept(self) -> None:
        built = build_schema_from_example({"text": "x" * MAX_SCHEMA_BYTES}, for_input=True)
        assert "examples" not in built.schema

    def test_what_makes_no_schema_for_strict_mode_is_refused(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(11):
            deep = {"inner": deep}
        for example in (deep, {f"a_rather_long_name_{index}": 1 for index in range(3_000)}):
            with pytest.raises(SpecError):
                build_schema_from_example(example)

    @given(EXAMPLES, st.booleans())
    def test_strict_mode_takes_the_schema_and_the_schema_takes_the_example(
        self, example: dict[str, Any], with_descriptions: bool
    ) -> None:
        schema = build_schema_from_example(example, with_descriptions=with_descriptions).schema
        assert check_strict(schema) == []
        assert all(("description" in part) is with_descriptions for part in schema["properties"].values())
        assert compile_schema(schema).validate_output(fill_gaps(example, schema)) == ()

    @given(EXAMPLES)
    def test_an_input_always_fits_as_it_is(self, example: dict[str, Any]) -> None:
        schema = build_schema_from_example(example, for_input=True).schema
        assert check_input_schema(schema) == []
        assert compile_schema(schema).validate_output(example) == ()


class TestTable:
    def test_each_field_is_a_row_with_its_kind_and_its_rules(self) -> None:
        line = closed(text={"type": "string", "description": "As printed"}, amount={"$ref": "#/$defs/amount"})
        schema = {
            **closed(lines={"type": "array", "items": line, "minItems": 1}, mood={"enum": ["calm", "bold"]}),
            "required": ["lines"],
            "$defs": {"amount": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        }
        assert list_rows(schema) == [
            SchemaRow("lines", "list of object", True, "", "minItems 1"),
            SchemaRow("lines[].text", "text", True, "As printed", ""),
            SchemaRow("lines[].amount", "number or null", True, "", ""),
            SchemaRow("mood", "anything", False, "", 'enum ["calm","bold"]'),
        ]

    def test_references_that_lead_back_or_multiply_end(self) -> None:
        doubling: dict[str, Any] = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(15)}
        tree = closed(name={"type": "string"}, parts={"type": "array", "items": {"$ref": "#/$defs/tree"}})
        definitions = doubling | {"a15": {"type": "string"}, "tree": tree}
        rows = list_rows({**closed(a={"$ref": "#/$defs/a0"}), "$defs": definitions})
        assert [row.name for row in rows] == ["a"]
        rows = list_rows({**closed(tree={"$ref": "#/$defs/tree"}), "$defs": definitions})
        assert [row.name for row in rows] == ["tree", "tree.name", "tree.parts"]

    @pytest.mark.parametrize("schema", [{"properties": 1}, {"anyOf": 1}, {"$ref": "#/$defs/none"}])
    def test_what_is_no_schema_is_refused(self, schema: dict[str, Any]) -> None:
        with pytest.raises(SpecError):
            list_rows(schema)

    def test_of_many_fields_the_first_are_shown(self) -> None:
        assert len(list_rows(closed(**{f"f{index}": {"type": "string"} for index in range(500)}))) == MAX_FIELDS
