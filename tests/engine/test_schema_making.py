"""Schemas made from an example: they take the example, and strict mode takes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import SpecError
from flows.engine.output_schema import check_input_schema, validate_output
from flows.engine.schema_making import MOST_NOTES, make_schema_from_example
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


def make(example: dict[str, Any], **options: Any) -> dict[str, Any]:
    return make_schema_from_example(example, **options).schema


def fill_gaps(value: Any, schema: dict[str, Any]) -> Any:
    """The value, with null for the properties that its schema requires and it lacks."""
    kind = {dict: "object", list: "array"}.get(type(value))
    for branch in schema.get("anyOf", [schema]):
        if kind == "object" and "object" in branch["type"]:
            return {name: fill_gaps(value.get(name), child) for name, child in branch["properties"].items()}
        if kind == "array" and "array" in branch["type"]:
            return [fill_gaps(item, branch["items"]) for item in value]
    return value


class TestTypes:
    @pytest.mark.parametrize(
        ("value", "schema"),
        [
            ("Nordwind", {"type": "string"}),
            (3, {"type": "integer"}),
            (3.0, {"type": "number"}),
            (True, {"type": "boolean"}),
            ([1, 2], {"type": "array", "items": {"type": "integer"}}),
            ([1, 2.5], {"type": "array", "items": {"type": "number"}}),
            (["a", None], {"type": "array", "items": {"type": ["string", "null"]}}),
            ([1, "a"], {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}),
            (
                [1, "a", None],
                {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}},
            ),
            ([True, 1], {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}),
            ({"a": 1}, closed(a={"type": "integer"})),
        ],
    )
    def test_a_value_tells_its_type(self, value: Any, schema: dict[str, Any]) -> None:
        made = make_schema_from_example({"it": value})
        assert made.schema == closed(it=schema)
        assert made.notes == ()

    def test_properties_stay_in_the_order_of_the_example(self) -> None:
        assert list(make({"zip": "20457", "city": "Hamburg", "at": 1})["properties"]) == ["zip", "city", "at"]

    def test_elements_of_a_list_are_merged(self) -> None:
        made = make_schema_from_example({"lines": [{"text": "Paper", "amount": 3}, {"text": None, "amount": 2.5}]})
        line = closed(text={"type": ["string", "null"]}, amount={"type": "number"})
        assert made.schema == closed(lines={"type": "array", "items": line})
        assert made.notes == ()

    def test_descriptions_can_be_left_to_fill_in(self) -> None:
        schema = make({"a": [{"b": 1}], "c": [1, "x"]}, with_descriptions=True)
        assert schema["properties"]["a"]["description"] == ""
        assert schema["properties"]["a"]["items"]["properties"]["b"] == {"type": "integer", "description": ""}
        assert schema["properties"]["c"]["description"] == ""
        assert "description" not in schema["properties"]["c"]["items"]
        assert check_strict(schema) == []


class TestNotes:
    def test_an_empty_list_says_that_it_needs_an_element(self) -> None:
        made = make_schema_from_example({"order": {"tags": []}})
        assert made.schema["properties"]["order"]["properties"]["tags"]["items"] == {"type": "string"}
        assert made.notes == (
            "`order.tags` is an empty list: a list of texts is assumed. Give it one element to show what it holds.",
        )

    def test_a_list_that_is_empty_in_one_element_only_says_nothing(self) -> None:
        assert make_schema_from_example({"rows": [{"tags": []}, {"tags": [1]}]}).notes == ()

    def test_null_alone_says_what_is_assumed(self) -> None:
        made = make_schema_from_example({"due": None})
        assert made.schema == closed(due={"type": ["string", "null"]})
        assert made.notes == ("`due` is null in the example: text or null is assumed.",)

    def test_what_only_some_elements_have_may_be_null(self) -> None:
        made = make_schema_from_example({"rows": [{"a": 1}, {"a": 2, "b": 3}]})
        assert made.schema["properties"]["rows"]["items"] == closed(
            a={"type": "integer"}, b={"type": ["integer", "null"]}
        )
        assert made.notes == ("`rows[1].b` is not in every element of its list: it is required, and may be null.",)

    def test_an_empty_object_says_that_nothing_may_stand_in_it(self) -> None:
        assert make_schema_from_example({"more": {}}).notes == ("`more` is an empty object: nothing may stand in it.",)

    def test_of_many_notes_the_number_is_told(self) -> None:
        notes = make_schema_from_example({f"field_{index}": None for index in range(MOST_NOTES + 5)}).notes
        assert len(notes) == MOST_NOTES + 1
        assert notes[-1] == "5 more places were left open."


class TestInputs:
    def test_the_example_is_kept(self) -> None:
        example = {"brand": "Nordwind", "seeds": 3}
        schema = make(example, for_input=True)
        assert schema == {**closed(brand={"type": "string"}, seeds={"type": "integer"}), "examples": [example]}

    def test_what_only_some_elements_have_may_be_left_out(self) -> None:
        made = make_schema_from_example({"rows": [{"a": 1}, {"a": 2, "b": 3}]}, for_input=True)
        rows = made.schema["properties"]["rows"]["items"]
        assert rows["required"] == ["a"]
        assert rows["properties"]["b"] == {"type": "integer"}
        assert made.notes == ("`rows[1].b` is not in every element of its list: it may be left out.",)

    def test_an_example_that_is_too_large_is_not_kept(self) -> None:
        made = make_schema_from_example({"text": "x" * MAX_SCHEMA_BYTES}, for_input=True)
        assert "examples" not in made.schema
        assert "too large to be kept" in made.notes[0]


class TestRefusals:
    def test_objects_that_nest_too_deep_are_refused(self) -> None:
        example: dict[str, Any] = {}
        for _ in range(11):
            example = {"inner": example}
        with pytest.raises(SpecError, match="nested deeper than 10 levels"):
            make_schema_from_example(example)

    def test_too_many_names_are_refused(self) -> None:
        with pytest.raises(SpecError, match="at most 64 KB"):
            make_schema_from_example({f"a_rather_long_name_{index}": 1 for index in range(3_000)})


class TestAnyExample:
    @given(EXAMPLES, st.booleans())
    def test_strict_mode_takes_the_schema_and_the_schema_takes_the_example(
        self, example: dict[str, Any], with_descriptions: bool
    ) -> None:
        schema = make(example, with_descriptions=with_descriptions)
        assert check_strict(schema) == []
        assert validate_output(fill_gaps(example, schema), schema) == ()

    @given(EXAMPLES)
    def test_without_gaps_the_example_fits_as_it_is(self, example: dict[str, Any]) -> None:
        made = make_schema_from_example(example)
        if not any("not in every element" in note or "more places" in note for note in made.notes):
            assert validate_output(example, made.schema) == ()

    @given(EXAMPLES)
    def test_an_input_always_fits_as_it_is(self, example: dict[str, Any]) -> None:
        schema = make(example, for_input=True)
        assert check_input_schema(schema) == []
        assert validate_output(example, schema) == ()
        assert schema["examples"] == [example]
