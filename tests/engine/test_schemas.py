"""Schemas of outputs and inputs: values held against them, the strict subset, and schemas made from an example."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flows.engine.errors import SpecError
from flows.engine.schema_builder import MAX_FIELDS, SchemaRow, build_schema_from_example, list_rows
from flows.engine.schemas import MAX_VIOLATIONS, check_input_schema, compile_schema
from flows.engine.spec import MAX_SCHEMA_BYTES
from flows.engine.strict_schema import SUPPORTED, check_strict, make_strict
from tests.engine.builders import INVOICE, closed

CIRCLE = closed(kind={"type": "string", "const": "c"}, size={"type": "number"})
COUNT = closed(kind={"type": "string", "const": "n"}, size={"type": "integer"})
NODE = closed(weight={"type": "number"}, parts={"type": "array", "items": {"$ref": "#/$defs/node"}})
DEFINITIONS = {"circle": CIRCLE, "count": COUNT, "node": NODE}
LIST_OF = {"type": "array", "items": {"anyOf": [CIRCLE, COUNT, {"type": "null"}]}}
TEXT_Y = {"type": "string"}


class TestValues:
    def test_thousands_of_violations_become_a_few_issues_and_a_huge_value_is_quoted_in_part(self) -> None:
        schema = closed(items={"type": "array", "items": {"type": "string"}})
        codes = [issue.code for issue in compile_schema(schema).validate_output({"items": list(range(5_000))})]
        assert codes == ["schema_mismatch"] * MAX_VIOLATIONS + ["more_schema_mismatches"]
        (issue,) = compile_schema(closed(a={"type": "number"})).validate_output({"a": "x" * 1_000_000})
        assert len(issue.description) < 300

    @pytest.mark.parametrize(
        ("schema", "value", "path", "word"),
        [
            ({"type": "string", "pattern": "^#"}, "zz", "/x", "^#"),
            ({"type": "string", "enum": ["a", "b"]}, "c", "/x", "“c”"),
            ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "/x", "string"),
            ({"anyOf": [closed(), closed(y={"type": "null"})]}, {"z": 1}, "/x", "anyOf"),
            ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3, "/x", "oneOf"),
            ({"not": {"$ref": "#/$defs/circle"}}, {"kind": "c", "size": 1}, "/x", "not"),
            ({"allOf": [{"properties": {"y": TEXT_Y}}]}, {"y": 1}, "/x/y", ""),
            ({"if": {"required": ["y"]}, "then": {"properties": {"y": {"minimum": 2}}}}, {"y": 1}, "/x/y", ""),
            ({"patternProperties": {"^y": TEXT_Y}, "additionalProperties": False}, {"z": 1}, "/x", "z"),
            ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1, "b"], "/x/2", ""),
            ({"anyOf": [closed(y=TEXT_Y), {"type": "null"}]}, {"y": 1}, "/x/y", ""),
            ({"anyOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/count"}]}, {"kind": "n"}, "/x", "x.size"),
            ({"anyOf": [{"$ref": "#/$defs/circle"}, {"type": "string"}]}, {"kind": "c", "size": ""}, "/x/size", ""),
        ],
    )
    def test_a_violation_is_reported_where_it_is(
        self, schema: dict[str, Any], value: Any, path: str, word: str
    ) -> None:
        whole = {"type": "object", "properties": {"x": schema}, "$defs": DEFINITIONS}
        (issue,) = compile_schema(whole).validate_output({"x": value})
        assert issue.path == path and word in issue.description

    @pytest.mark.parametrize("value", ["\ud800", {1: 2}, object(), float("nan"), 10**400])
    def test_a_value_that_is_no_json_is_an_issue_and_no_crash(self, value: Any) -> None:
        assert compile_schema(closed(a={"type": "string", "pattern": "^x"})).validate_output({"a": value})

    def test_a_pattern_that_would_take_for_ever_is_given_up(self) -> None:
        schema = closed(a={"type": "string", "pattern": r"(.*)*\1x"})
        assert compile_schema(schema).validate_output({"a": "a" * 5_000})

    def test_schemas_that_only_look_equal_are_not_taken_for_each_other(self) -> None:
        schemas = [compile_schema(closed(a={"const": one})) for one in (1, 1.0, True)]
        assert len({repr(one.schema) for one in schemas}) == 3

    @pytest.mark.parametrize(
        ("schema", "value", "coerced"),
        [
            ({"type": "number"}, 5, 5.0),
            ({"type": "integer"}, 3.0, 3),
            ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 1, 1.0),
            ({"type": "array", "items": {"type": "number"}}, [1, 2.5], [1.0, 2.5]),
            ({"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1}, {"a": 1.0}),
            (LIST_OF, [{"kind": "c", "size": 2}, None], [{"kind": "c", "size": 2.0}, None]),
            (LIST_OF, [{"kind": "n", "size": 2.0}], [{"kind": "n", "size": 2}]),
            (
                {"$ref": "#/$defs/node"},
                {"weight": 1, "parts": [{"weight": 2, "parts": []}]},
                {"weight": 1.0, "parts": [{"weight": 2.0, "parts": []}]},
            ),
        ],
    )
    def test_a_number_becomes_what_the_schema_names(self, schema: dict[str, Any], value: Any, coerced: Any) -> None:
        whole = {**closed(x=schema), "$defs": DEFINITIONS}
        assert repr(compile_schema(whole).coerce_numbers({"x": value})) == repr({"x": coerced})


KEYWORDS = st.sampled_from([*sorted(SUPPORTED), "allOf", "oneOf", "definitions", "nullable", "default", "a"])
WORDS = st.text(max_size=3) | st.sampled_from(["object", "#", "#/$defs/a"])


class TestStrictSubset:
    def test_objects_nested_too_deep_are_refused_and_recursion_through_definitions_is_allowed(self) -> None:
        schema = closed(a={"type": "string"})
        for _ in range(9):
            schema = closed(a=schema)
        assert check_strict(schema) == check_strict(INVOICE) == []
        assert [problem.path for problem in check_strict(closed(a=schema))] == ["/properties/a" * 10]
        assert check_strict({**closed(root={"$ref": "#/$defs/node"}), "$defs": {"node": NODE}}) == []

    @pytest.mark.parametrize(
        ("part", "keyword"),
        [
            ({"type": "string", "enum": ["a", None]}, "enum"),
            ({"type": "number", "const": "x"}, "const"),
            ({"type": ["string", "null"], "enum": ["a", None]}, None),
            ({"type": "number", "enum": [1, 2.5]}, None),
            ({"type": ["null", "null"], "enum": ["a"]}, "enum"),
        ],
    )
    def test_values_have_the_type_of_their_part(self, part: dict[str, Any], keyword: str | None) -> None:
        found = [problem.path for problem in check_strict(closed(a=part))]
        assert found[:1] == ([] if keyword is None else [f"/properties/a/{keyword}"])

    @pytest.mark.parametrize("ref", ["https://example.com/schema", "file:///etc/hostname", "//example.com"])
    def test_no_schema_makes_the_server_fetch_anything(self, ref: str) -> None:
        # The guard of the test suite lets no connection through: a fetch would raise.
        (problem,) = check_input_schema({"type": "object", "properties": {"a": {"$ref": ref}}})
        assert problem.path == "/properties/a/$ref" and "nothing else is fetched" in problem.message

    @pytest.mark.parametrize(
        "loose",
        [
            {"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "number"}]}, "b": {"enum": [None, "x", 2.5]}}},
            {"properties": {"a": {"type": "integer", "pattern": "x", "minimum": 1}, "b": {"items": TEXT_Y}}},
            {"$ref": "#/definitions/a", "definitions": {"a": {"properties": {"b": {"$ref": "#/definitions/a"}}}}},
            {
                "properties": {"a": {"$ref": "#/$defs/tree", "description": "beside"}},
                "$defs": {"tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}},
            },
            {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"type": "string", "minLength": 3, "format": "color"}}},
        ],
    )
    def test_what_can_be_made_strict_is_so_afterwards(self, loose: dict[str, Any]) -> None:
        strict = make_strict(loose)
        assert check_strict(strict) == []
        assert make_strict(strict) == strict

    def test_optional_properties_become_nullable_or_required_alone(self) -> None:
        optional = {
            "a": {"type": "string", "enum": ["x"], "default": "x"},
            "b": {"type": "string", "const": "x"},
            "c": {"$ref": "#/$defs/c"},
            "d": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        }
        strict = make_strict({"type": "object", "properties": optional, "$defs": {"c": {"type": "string"}}})
        for value in (dict.fromkeys("abcd"), {"a": "x", "b": "x", "c": "y", "d": 1}):
            assert compile_schema(strict).validate_output(value) == ()
        loose = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
        assert make_strict(loose, optional_becomes_null=False) == closed(a={"type": "string"})

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | WORDS,
            lambda parts: st.lists(parts, max_size=3) | st.dictionaries(KEYWORDS, parts, max_size=4),
            max_leaves=15,
        )
    )
    @example({"type": "string", "format": []})
    @example({"type": [[]]})
    @example({"properties": {"a": 1}})
    def test_no_document_crashes_the_check_or_make_strict(self, document: Any) -> None:
        check_strict(document)
        check_input_schema(document)
        strict = make_strict(document)
        assert make_strict(strict) == strict

    def test_references_that_would_double_with_each_level_are_not_all_written_out(self) -> None:
        definitions: dict[str, Any] = {"d40": {"type": "string"}}
        for level in range(40):
            parts = {name: {"$ref": f"#/$defs/d{level + 1}", "description": "x"} for name in "ab"}
            definitions[f"d{level}"] = closed(**parts)
        schema = {**closed(a={"$ref": "#/$defs/d0", "description": "x"}), "$defs": definitions}
        assert len(str(make_strict(schema))) < 2_000_000


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NAMES = TEXT | st.sampled_from(["$ref", "$defs", "$id", "properties", "enum", "examples", "type", "a", "b"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=15
)
EXAMPLES = st.dictionaries(NAMES, VALUES, max_size=5)


def list_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


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
            ({"b": 1, "a": 3.0}, closed(b={"type": "integer"}, a={"type": "number"}), 0),
            ([1, 2.5], list_of({"type": "number"}), 0),
            (["a", None], list_of({"type": ["string", "null"]}), 0),
            (
                [1, {"a": 1}, None],
                list_of({"anyOf": [{"type": ["integer", "null"]}, closed(a={"type": "integer"})]}),
                0,
            ),
            ([[], [1]], list_of(list_of({"type": "integer"})), 0),
            ([], list_of({"type": "string"}), 1),
            (None, {"type": ["string", "null"]}, 1),
            ([{"a": 1}, {"a": 2, "b": 3}], list_of(closed(a={"type": "integer"}, b={"type": ["integer", "null"]})), 1),
        ],
    )
    def test_a_value_shows_its_type_and_what_it_leaves_open_is_noted(
        self, value: Any, schema: dict[str, Any], notes: int
    ) -> None:
        built = build_schema_from_example({"it": value})
        assert (built.schema, len(built.notes)) == (closed(it=schema), notes)
        assert all(note.startswith("`it") for note in built.notes)

    def test_an_input_keeps_its_example_and_may_leave_out_what_only_some_elements_have(self) -> None:
        found = {"rows": [{"a": 1}, {"a": 2, "b": 3}]}
        schema = build_schema_from_example(found, for_input=True).schema
        assert (schema["properties"]["rows"]["items"]["required"], schema["examples"]) == (["a"], [found])
        built = build_schema_from_example({"text": "x" * MAX_SCHEMA_BYTES}, for_input=True)
        assert "examples" not in built.schema, "one that is too large is not kept"

    def test_what_makes_no_schema_for_strict_mode_is_refused(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(11):
            deep = {"inner": deep}
        for found in (deep, {f"a_rather_long_name_{index}": 1 for index in range(3_000)}):
            with pytest.raises(SpecError):
                build_schema_from_example(found)

    @given(EXAMPLES, st.booleans())
    def test_strict_mode_takes_the_schema_and_the_schema_takes_the_example(
        self, found: dict[str, Any], with_descriptions: bool
    ) -> None:
        schema = build_schema_from_example(found, with_descriptions=with_descriptions).schema
        assert check_strict(schema) == []
        assert list(schema["properties"]) == schema["required"] == list(found)
        assert all(("description" in part) is with_descriptions for part in schema["properties"].values())
        assert compile_schema(schema).validate_output(fill_gaps(found, schema)) == ()
        for_input = build_schema_from_example(found, for_input=True).schema
        assert check_input_schema(for_input) == []
        assert compile_schema(for_input).validate_output(found) == ()


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
            SchemaRow("mood", "anything", False, "", "one of calm, bold"),
        ]

    def test_references_that_lead_back_or_multiply_end_and_of_many_fields_the_first_are_shown(self) -> None:
        doubling: dict[str, Any] = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(15)}
        definitions = {**doubling, "a15": {"type": "string"}, "node": NODE}
        for name, names in (("a0", ["it"]), ("node", ["it", "it.weight", "it.parts"])):
            rows = list_rows({**closed(it={"$ref": f"#/$defs/{name}"}), "$defs": definitions})
            assert [row.name for row in rows] == names
        assert len(list_rows(closed(**{f"f{index}": {"type": "string"} for index in range(500)}))) == MAX_FIELDS

    @pytest.mark.parametrize("schema", [{"properties": 1}, {"anyOf": 1}, {"$ref": "#/$defs/none"}])
    def test_what_is_no_schema_is_refused(self, schema: dict[str, Any]) -> None:
        with pytest.raises(SpecError):
            list_rows(schema)
