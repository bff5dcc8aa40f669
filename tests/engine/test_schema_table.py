"""Schemas as a table of fields: made from one, and shown as one without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import SpecError
from flows.engine.output_schema import check_input_schema
from flows.engine.schema_making import make_schema_from_example
from flows.engine.schema_table import MAX_LEVELS, FieldType, SchemaField, SchemaTable, make_schema_from_fields
from flows.engine.schema_table_reading import read_table
from flows.engine.strict_schema import check_strict
from flows.examples import load_documents
from tests.engine.builders import INVOICE, closed
from tests.engine.test_schema_making import EXAMPLES

NESTING = (FieldType.OBJECT, FieldType.OBJECTS)


def field(name: str = "it", type: str = "text", **values: Any) -> SchemaField:
    return SchemaField(name=name, type=FieldType(type), **values)


def make(*fields: SchemaField, for_input: bool = False, **values: Any) -> dict[str, Any]:
    return make_schema_from_fields(SchemaTable(fields=fields, **values), for_input=for_input)


def problems_of(*fields: SchemaField) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        make(*fields)
    return {problem.path: problem.message for problem in caught.value.problems}


LINES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=6)


@st.composite
def rows(draw: st.DrawFn, level: int = 1) -> tuple[SchemaField, ...]:
    names = draw(st.lists(LINES, min_size=1, max_size=3, unique=True))
    return tuple(draw(row(name, level)) for name in names)


@st.composite
def row(draw: st.DrawFn, name: str, level: int) -> SchemaField:
    kinds = [kind for kind in FieldType if kind not in NESTING or level < MAX_LEVELS]
    kind = draw(st.sampled_from(kinds))
    return SchemaField(
        name=name,
        type=kind,
        is_nullable=draw(st.booleans()),
        description=draw(LINES | st.just("")),
        choices=tuple(draw(st.lists(LINES, min_size=1, max_size=3, unique=True))) if kind is FieldType.CHOICE else (),
        fields=draw(rows(level + 1)) if kind in NESTING else (),
    )


class TestMaking:
    @pytest.mark.parametrize(
        ("row", "schema"),
        [
            (field(), {"type": "string"}),
            (field(is_nullable=True), {"type": ["string", "null"]}),
            (field(description="As printed"), {"type": "string", "description": "As printed"}),
            (field(type="integer"), {"type": "integer"}),
            (field(type="number"), {"type": "number"}),
            (field(type="boolean"), {"type": "boolean"}),
            (field(type="choice", choices=("calm", "bold")), {"type": "string", "enum": ["calm", "bold"]}),
            (
                field(type="choice", choices=("calm",), is_nullable=True),
                {"type": ["string", "null"], "enum": ["calm", None]},
            ),
            (field(type="texts"), {"type": "array", "items": {"type": "string"}}),
            (field(type="integers"), {"type": "array", "items": {"type": "integer"}}),
            (field(type="numbers"), {"type": "array", "items": {"type": "number"}}),
            (field(type="object", fields=(field("a"),)), closed(a={"type": "string"})),
            (
                field(type="objects", fields=(field("a"),)),
                {"type": "array", "items": closed(a={"type": "string"})},
            ),
            (field(further={"pattern": "^x"}), {"type": "string", "pattern": "^x"}),
        ],
    )
    def test_each_row_becomes_a_property(self, row: SchemaField, schema: dict[str, Any]) -> None:
        assert make(row) == closed(it=schema)

    def test_properties_stay_in_the_order_of_the_rows(self) -> None:
        assert list(make(field("z"), field("a"))["properties"]) == ["z", "a"]

    def test_outputs_require_every_field(self) -> None:
        assert make(field("a", is_required=False), is_closed=False) == closed(a={"type": "string"})

    def test_inputs_may_leave_fields_out_and_take_others(self) -> None:
        schema = make(field("a"), field("b", is_required=False), for_input=True, is_closed=False)
        assert schema["required"] == ["a"]
        assert "additionalProperties" not in schema


class TestFaults:
    def test_every_fault_is_told_at_its_row(self) -> None:
        problems = problems_of(
            field(""),
            field("a"),
            field("a"),
            field(" b"),
            field("mood", "choice"),
            field("size", "choice", choices=("S", "S", "")),
            field("lines", "objects"),
            field("address", "object", fields=(field(""),)),
        )
        assert problems == {
            "/fields/0/name": "The name of field 1 is missing.",
            "/fields/2/name": "The name “a” stands twice; give one of the fields another name.",
            "/fields/3/name": "The name “ b” begins or ends with a space; take it out.",
            "/fields/4/choices": "“mood” has no choices yet. Write one a line.",
            "/fields/5/choices": "A choice of “size”, “”, is missing.",
            "/fields/6/fields": "“lines” has no fields yet. Add one.",
            "/fields/7/fields/0/name": "The name of field 1 is missing.",
        }

    def test_an_empty_table_makes_nothing(self) -> None:
        assert problems_of() == {"/fields": "The table has no fields yet. Add one."}

    def test_fields_nest_to_a_limit(self) -> None:
        row = field("deepest")
        for _ in range(MAX_LEVELS):
            row = field("inner", "object", fields=(row,))
        assert list(problems_of(row).values()) == ["Fields nest at most 3 levels deep in the table."]

    def test_keywords_that_strict_mode_does_not_know_are_told_by_their_place(self) -> None:
        (message,) = problems_of(field("a", further={"minLength": 1})).values()
        assert message.startswith("/properties/a/minLength: Strict mode doesn't know “minLength”")

    def test_no_keyword_comes_in_by_the_back_door(self) -> None:
        assert problems_of(field("a", further={"$ref": "#"})) == {"/fields/0": "The table keeps no “$ref”."}


class TestShowing:
    def test_an_invoice_is_shown_row_by_row(self) -> None:
        table = read_table(INVOICE)
        assert [(row.name, row.type.value) for row in table.fields] == [
            ("supplier", "text"),
            ("total", "number"),
            ("lines", "objects"),
        ]
        assert [row.name for row in table.fields[2].fields] == ["text", "amount"]
        assert table.fields[1].further == {"minimum": 0}
        assert table.fields[2].further == {"minItems": 1}

    @pytest.mark.parametrize("name", sorted(load_documents()))
    def test_the_inputs_of_the_examples_come_through_unchanged(self, name: str) -> None:
        schema = load_documents()[name]["input_schema"]
        assert make_schema_from_fields(read_table(schema, for_input=True), for_input=True) == schema

    def test_what_an_output_may_leave_out_may_be_null(self) -> None:
        table = read_table({**closed(a={"type": "string"}), "required": []})
        assert [row.is_nullable for row in table.fields] == [True]

    @pytest.mark.parametrize(
        ("schema", "path", "says"),
        [
            ([], "", "must be a JSON object"),
            ({"type": "array"}, "", "Its type is not “object”"),
            ({"type": "object"}, "", "doesn't list its “properties”"),
            ({**closed(), "additionalProperties": True}, "/additionalProperties", "takes other fields"),
            ({**closed(), "additionalProperties": {}}, "/additionalProperties", "a schema of their own"),
            ({**closed(), "$defs": {}}, "/$defs", "no place for “$defs”"),
            ({**closed(), "required": ["ghost"]}, "/required", "no list of names"),
            ({**closed(), "required": [[]]}, "/required", "no list of names"),
            (closed(a={"$ref": "#/$defs/a"}), "/properties/a/$ref", "no place for “$ref”"),
            (closed(a={"anyOf": [{"type": "string"}]}), "/properties/a/anyOf", "no place for “anyOf”"),
            (closed(a={"type": ["string", "integer"]}), "/properties/a", "exactly one type"),
            (closed(a={"type": [[]]}), "/properties/a", "exactly one type"),
            (closed(a={"type": "string", "const": "x"}), "/properties/a/const", "no place for “const”"),
            (closed(a={"type": "integer", "enum": [1]}), "/properties/a/enum", "no place for “enum”"),
            (closed(a={"type": "string", "enum": ["x", 1]}), "/properties/a/enum", "texts of one line"),
            (closed(a={"type": "string", "enum": ["x\ny"]}), "/properties/a/enum", "texts of one line"),
            (closed(a={"type": "string", "enum": ["x", "x"]}), "/properties/a/enum", "stands twice"),
            (closed(a={"type": ["string", "null"], "enum": ["x"]}), "/properties/a/enum", "disagree about null"),
            (closed(a={"type": "array"}), "/properties/a/items", "what its elements are"),
            (closed(a={"type": "array", "items": {"type": "boolean"}}), "/properties/a/items", "texts, numbers or"),
            (closed(a={"type": "string", "description": 1}), "/properties/a/description", "no text"),
            (closed(a=True), "/properties/a", "a boolean"),
            (closed(**{" a": {"type": "string"}}), "/properties/ a", "begins or ends with a space"),
            (closed(a=closed(b=closed(c=closed()))), "/properties/a/properties/b/properties/c", "deeper than 3"),
        ],
    )
    def test_what_the_table_can_not_show_is_named(self, schema: Any, path: str, says: str) -> None:
        with pytest.raises(SpecError) as caught:
            read_table(schema)
        (problem,) = caught.value.problems
        assert problem.path == path
        assert says in problem.message

    def test_objects_of_an_input_are_open_or_closed_alike(self) -> None:
        schema = {"type": "object", "properties": {"a": closed(b={"type": "string"})}}
        with pytest.raises(SpecError, match="Some of its objects take other fields"):
            read_table(schema, for_input=True)
        assert read_table({"type": "object", "properties": {}}, for_input=True).is_closed is False


class TestThereAndBack:
    @given(rows(), st.booleans())
    def test_a_table_comes_back_from_its_schema(self, fields: tuple[SchemaField, ...], is_closed: bool) -> None:
        table = SchemaTable(fields=fields)
        schema = make_schema_from_fields(table)
        assert check_strict(schema) == []
        assert read_table(schema) == table
        table = SchemaTable(fields=fields, is_closed=is_closed)
        schema = make_schema_from_fields(table, for_input=True)
        assert check_input_schema(schema) == []
        assert read_table(schema, for_input=True) == table

    @given(EXAMPLES, st.booleans())
    def test_a_schema_that_can_be_shown_comes_back_from_its_table(self, example: Any, for_input: bool) -> None:
        schema = make_schema_from_example(example, for_input=for_input).schema
        try:
            table = read_table(schema, for_input=for_input)
            made = make_schema_from_fields(table, for_input=for_input)
        except SpecError:
            return  # what can't be shown is left alone
        assert json.dumps(made["properties"]) == json.dumps(schema["properties"])
        assert made == schema
