"""What changed between two JSON Schemas, in sentences."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from flows.engine.differences.schema_diff import compare_schemas
from tests.engine.builders import closed
from tests.engine.differences.spec_changes import schemas

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (closed(a=TEXT), closed(a=TEXT, total=NUMBER), ["property `total` added (number)"]),
        (closed(a=TEXT, total=NUMBER), closed(a=TEXT), ["property `total` removed (number)"]),
        (closed(a=TEXT, totl=NUMBER), closed(a=TEXT, total=NUMBER), ["property `totl` is now called `total`"]),
        (
            closed(currency=TEXT),
            closed(currency={"type": "string", "enum": ["EUR", "USD"]}),
            ["`currency` is now one of EUR, USD (was text)"],
        ),
        (closed(a=TEXT), closed(a={"type": ["string", "null"]}), ["`a` is now text or null (was text)"]),
        (closed(a=TEXT), closed(a={"type": "array", "items": TEXT}), ["`a` is now list of text (was text)"]),
        (closed(a=TEXT), closed(a={"$ref": "#/$defs/Colour"}), ["`a` is now “Colour” (was text)"]),
        (closed(a=TEXT), closed(a={"anyOf": [TEXT, NUMBER]}), ["`a` is now text or number (was text)"]),
        (closed(a=TEXT), closed(a={**TEXT, "format": "date"}), ["`a` is now text (date) (was text)"]),
        (closed(a=NUMBER), closed(a={**NUMBER, "minimum": 0}), ["`minimum` of `a`: none → 0"]),
        (
            closed(a={**TEXT, "description": "Old"}),
            closed(a={**TEXT, "description": "New"}),
            ["description of `a` changed: “Old” → “New”"],
        ),
        (
            closed(lines={"type": "array", "items": closed(text=TEXT)}),
            closed(lines={"type": "array", "items": closed(text=TEXT, amount=NUMBER), "minItems": 1}),
            ["property `lines[].amount` added (number)", "`minItems` of `lines`: none → 1"],
        ),
        (closed(a=TEXT, b=NUMBER), closed(b=NUMBER, a=TEXT), ["order of properties changed: b, a"]),
        (
            {**closed(a=TEXT), "required": []},
            closed(a=TEXT),
            ["`a` must now be there"],
        ),
        (
            {"type": "object", "properties": {"a": TEXT}},
            {"type": "object", "properties": {"a": TEXT, "b": NUMBER}},
            ["property `b` added (number, may be missing)"],
        ),
        (
            {"$defs": {"Colour": TEXT}},
            {"$defs": {"Colour": NUMBER, "Shape": TEXT}},
            ["`Colour` is now number (was text)", "definition `Shape` added (text)"],
        ),
        (
            closed(a={"anyOf": [TEXT, NUMBER]}),
            closed(a={"anyOf": [TEXT, {**NUMBER, "maximum": 5}]}),
            ["`maximum` of `a (2nd choice)`: none → 5"],
        ),
        (
            closed(a=TEXT),
            {**closed(a=TEXT), "additionalProperties": True},
            ["the whole now allows properties that are not listed"],
        ),
        ({"type": "object", "x": 1}, {"x": 1, "type": "object"}, ["order of keywords of the whole changed"]),
        ({"x": 1}, {"x": 1.0}, ["`x` of the whole: 1 → 1.0"]),
    ],
)
def test_a_difference_is_a_sentence(old: dict[str, Any], new: dict[str, Any], told: list[str]) -> None:
    assert compare_schemas(old, new) == told


@given(schemas, schemas)
def test_something_is_said_exactly_if_the_documents_differ(old: dict[str, Any], new: dict[str, Any]) -> None:
    said = compare_schemas(old, new)
    assert bool(said) == (json.dumps(old) != json.dumps(new))
    assert all(said)
