"""The strict subset of JSON Schema: what is refused beside ``tests/contract/golden/bad_flows.yaml``, and what can be
made strict.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flows.engine.schemas import check_input_schema, compile_schema
from flows.engine.strict_schema import SUPPORTED, check_strict, make_strict
from tests.engine.builders import INVOICE, closed

KEYWORDS = st.sampled_from([*sorted(SUPPORTED), "allOf", "oneOf", "definitions", "nullable", "default", "a"])


class TestStrictSubset:
    def test_a_strict_schema_has_no_problems(self) -> None:
        assert check_strict(INVOICE) == []

    @pytest.mark.parametrize(
        ("schema", "path"),
        [
            ({**closed(), "required": [{}]}, "/required/0"),
            (closed(a={"$ref": "http://example.com/schema"}), "/properties/a/$ref"),
            ({**closed(), "$defs": {"a": {"$ref": "#/$defs/a"}}}, "/$defs/a/$ref"),
            (closed(a={"$ref": "#/$defs/b", "title": "A"}), "/properties/a"),
            ({"$ref": "#/$defs/a", "$defs": {"a": closed()}}, "/$ref"),
            ({**closed(), "$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
            (closed(a={"type": "string", "description": "x" * 70_000}), ""),
            (closed(a={"type": "string", "const": "\ud800"}), ""),
            ("text", ""),
        ],
    )
    def test_each_offence_is_reported_at_its_place(self, schema: Any, path: str) -> None:
        assert path in [problem.path for problem in check_strict(schema)]

    def test_objects_nested_too_deep_are_refused(self) -> None:
        schema = closed(a={"type": "string"})
        for _ in range(9):
            schema = closed(a=schema)
        assert check_strict(schema) == []
        (problem,) = check_strict(closed(a=schema))
        assert (problem.path, "10 levels" in problem.message) == ("/properties/a" * 10, True)

    def test_recursion_through_definitions_is_allowed(self) -> None:
        node = closed(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#/$defs/node"}})
        assert check_strict({**closed(root={"$ref": "#/$defs/node"}), "$defs": {"node": node}}) == []


class TestMakeStrict:
    def test_objects_are_closed_and_optional_properties_become_nullable(self) -> None:
        loose = {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 3}},
            "required": ["a"],
        }
        assert make_strict(loose) == closed(a={"type": "string"}, b={"type": ["integer", "null"]})

    @pytest.mark.parametrize(
        "loose",
        [
            {"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "number"}]}}},
            {
                "properties": {
                    "a": {"const": 1},
                    "b": {"enum": [None, "x", 2.5]},
                    "c": {"type": "string", "nullable": True},
                }
            },
            {
                "properties": {
                    "a": {"type": "integer", "pattern": "x", "minimum": 1},
                    "b": {"items": {"type": "string"}},
                }
            },
            {"$ref": "#/definitions/a", "definitions": {"a": {"properties": {"b": {"$ref": "#/definitions/a"}}}}},
            {
                "properties": {"a": {"$ref": "#/$defs/tree", "description": "beside"}},
                "$defs": {"tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}},
            },
            {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}},
            {"type": "object", "properties": {"a": {"type": "string", "minLength": 3, "format": "color"}}},
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/b", "description": "beside"}},
                "$defs": {"b": {"type": "object", "properties": {"c": {"type": "string"}}}},
            },
        ],
    )
    def test_what_can_be_made_strict_is_so_afterwards(self, loose: dict[str, Any]) -> None:
        strict = make_strict(loose)
        assert check_strict(strict) == []
        assert make_strict(strict) == strict

    def test_what_strict_mode_makes_nullable_takes_null(self) -> None:
        loose = {
            "type": "object",
            "properties": {
                "a": {"type": "string", "enum": ["x"]},
                "b": {"type": "string", "const": "x"},
                "c": {"$ref": "#/$defs/c"},
                "d": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            },
            "$defs": {"c": {"type": "string"}},
        }
        strict = make_strict(loose)
        for value in ({"a": None, "b": None, "c": None, "d": None}, {"a": "x", "b": "x", "c": "y", "d": 1}):
            assert compile_schema(strict).validate_output(value) == ()

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.text(max_size=3)
            | st.sampled_from(["object", "#", "#/$defs/a"]),
            lambda parts: st.lists(parts, max_size=3) | st.dictionaries(KEYWORDS, parts, max_size=4),
            max_leaves=15,
        )
    )
    @example({"type": "string", "format": []})
    @example({"type": [[]]})
    def test_no_document_crashes_the_check_or_make_strict(self, document: Any) -> None:
        check_strict(document)
        check_input_schema(document)
        strict = make_strict(document)
        assert make_strict(strict) == strict

    def test_optional_properties_can_become_required_alone(self) -> None:
        loose = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
        assert make_strict(loose, optional_becomes_null=False) == closed(a={"type": "string"})


def test_references_that_would_double_with_each_level_are_not_all_written_out() -> None:
    definitions: dict[str, Any] = {"d40": {"type": "string"}}
    for level in range(40):
        parts = {name: {"$ref": f"#/$defs/d{level + 1}", "description": "x"} for name in "ab"}
        definitions[f"d{level}"] = closed(**parts)
    schema = {**closed(a={"$ref": "#/$defs/d0", "description": "x"}), "$defs": definitions}
    assert len(str(make_strict(schema))) < 2_000_000
