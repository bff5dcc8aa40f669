"""Invented outputs fit the schema of the tool, whatever it is."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.simulated_model import SimulatedModel, invent_value
from flows.engine.simulated_model.text_pattern import generate_match
from tests.engine.simulated_requests import COLOR, INVOICE, ask, make_request

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "left", "children"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema", [INVOICE, TREE, COLOR])
@pytest.mark.parametrize("seed", range(5))
async def test_an_invented_output_fits_the_schema_of_the_tool(schema: dict[str, Any], seed: int) -> None:
    reply = await ask(SimulatedModel(seed=seed), make_request(schema))
    assert reply.issues == ()
    jsonschema_rs.validate(schema, reply.arguments, validate_formats=True)


async def test_invented_texts_are_believable_by_the_names_of_their_properties() -> None:
    properties = {name: {"type": "string"} for name in ("accentColor", "email", "due_date", "currency", "vendor_name")}
    output = invent_value({"type": "object", "properties": properties}, seed="1")
    assert re.fullmatch("#[0-9a-f]{6}", output["accentColor"])
    assert re.fullmatch(r"\S+@example\.com", output["email"])
    assert re.fullmatch(r"2026-\d\d-\d\d", output["due_date"])
    assert re.fullmatch("[A-Z]{3}", output["currency"])
    assert output["vendor_name"][0].isupper()


@pytest.mark.parametrize(
    "pattern",
    [
        r"^#[0-9a-fA-F]{6}$",
        r"^INV-\d{4}(-[A-Z]{2})?$",
        r"^(?:north|south)(?P<side>east|west)?$",
        r"^\w+@\w+\.(com|org)$",
        r"^[^a-z\s]{2,}$",
        r"^[\d\-.]{3,5}?x*y+z?$",
        r"^\+?\(\d{3}\) \d{3}-\d{4}$",
        r"^.{3}\S\D\W$",
        r"^a|b$",
        r"^$",
    ],
)
def test_a_text_is_generated_that_its_pattern_matches(pattern: str) -> None:
    for seed in range(20):
        assert re.search(pattern, generate_match(pattern, Random(seed)))


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)b", r"(a)\1", r"\p{L}", "(", "a)", "[", "[]", "[z-a]", "a{", "a{2,1}", "*", "(" * 99, "((a{999}){999}){99}"],
)
def test_a_pattern_beyond_the_generator_gets_a_text_all_the_same(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        generate_match(pattern, Random(1))
    assert isinstance(invent_value({"type": "string", "pattern": pattern}, seed="1"), str)


def _strict_object(parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}


_bounds = st.tuples(st.integers(-1_000, 1_000), st.integers(0, 50)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_leaves = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda kind: {"type": kind}),
    st.sampled_from(["date", "date-time", "time", "email", "uuid", "uri", "ipv4", "ipv6", "hostname", "duration"]).map(
        lambda name: {"type": "string", "format": name}
    ),
    _bounds.map(lambda pair: {"type": "integer", "minimum": pair[0], "maximum": pair[1]}),
    _bounds.map(lambda pair: {"type": "number", "exclusiveMinimum": pair[0], "maximum": pair[1] + 1}),
    st.integers(-1_000, 1_000).map(lambda bound: {"type": "number", "exclusiveMaximum": bound}),
    st.integers(1, 20).map(lambda step: {"type": "integer", "multipleOf": step}),
    st.integers(0, 30).map(lambda length: {"type": "string", "minLength": length, "maxLength": length + 3}),
    st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=4).map(lambda values: {"enum": values}),
)
_schemas = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["color", "email", "total", "quantity", "notes"]), inner).map(_strict_object),
        st.tuples(inner, st.integers(0, 3), st.integers(0, 3)).map(
            lambda parts: {"type": "array", "items": parts[0], "minItems": parts[1], "maxItems": parts[1] + parts[2]}
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(schema=_schemas, seed=st.integers(0, 5))
def test_whatever_the_schema_the_invented_value_fits_it(schema: dict[str, Any], seed: int) -> None:
    value = invent_value(schema, seed=str(seed))
    jsonschema_rs.validate(schema, value, validate_formats=True)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/missing"},
        {"type": "object", "properties": {"self": {"$ref": "#"}}},
        {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
        {"type": []},
        {"anyOf": []},
        {"type": "integer", "minimum": 5, "maximum": 1},
        {"type": "array", "items": {"const": 1}, "uniqueItems": True, "minItems": 3},
        {"type": "array", "minItems": 2, "items": {"$ref": "#"}},
    ],
)
def test_a_schema_that_nothing_fits_ends_all_the_same(schema: dict[str, Any]) -> None:
    invent_value(schema, seed="1")
