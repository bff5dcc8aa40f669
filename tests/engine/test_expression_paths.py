"""Paths of expressions that lead nowhere by the schemas: what is doubted, and what never is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import ExpressionError
from flows.engine.expression_paths import find_path_warnings
from flows.engine.expressions import parse_expression
from tests.engine.builders import INVOICE, closed

OPEN = {"type": "object", "properties": {"customer": {"type": "string"}}}
NUMBER = {"type": ["number", "null"]}
NODE = closed(value=NUMBER, children={"type": "array", "items": {"$ref": "#/$defs/node"}})
TREE: dict[str, Any] = {
    **closed(
        root={"$ref": "#/$defs/node"},
        choice={"anyOf": [closed(left=NUMBER), closed(right=NUMBER), {"type": "null"}]},
        labels={"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        anything={},
    ),
    "$defs": {"node": NODE},
}


def doubts(text: str, **schemas: Any) -> list[str]:
    """What is doubted in an expression over an invoice, an open input, a tree and two earlier steps."""
    known = {"output": INVOICE, "input": OPEN, "previous": None, "value": TREE, **schemas}
    parse_expression(text, variables=frozenset({*known, "steps"}))
    return [doubt.message for doubt in find_path_warnings(text, schemas=known, steps=[OPEN, INVOICE])]


def misses(place: str, name: str, rest: str) -> list[str]:
    return [f"The schema of “{place}” has no property “{name}”. {rest}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output.totl > 1.0", misses("output", "totl", "Did you mean “total”?")),
        ("output['totl'] > 1.0", misses("output", "totl", "Did you mean “total”?")),
        ("output.lines[0].amuont", misses("output.lines[0]", "amuont", "Did you mean “amount”?")),
        ("output.zzz", misses("output", "zzz", "It has supplier, total, lines.")),
        ("{'a': [output.zzz]}", misses("output", "zzz", "It has supplier, total, lines.")),
        ("math.abs(output.totl) > 1.0", misses("output", "totl", "Did you mean “total”?")),
        ("output.lines.all(line, line.amuont > 0.0)", misses("line", "amuont", "Did you mean “amount”?")),
        ("output.lines.filter(l, l.amount > 0.0)[0].txt", None),
        ("steps[1].output.totl", misses("steps[1].output", "totl", "Did you mean “total”?")),
        ("steps[0].output.custmer", misses("steps[0].output", "custmer", "Did you mean “customer”?")),
        ("input.custmer", misses("input", "custmer", "Did you mean “customer”?")),
        ("value.root.children[0].children[1].valu", None),
        ("value.choice.middle", misses("value.choice", "middle", "It has left, right.")),
        ("output.supplier.name", ["“output.supplier” is text and has no property “name”."]),
        (
            "output.lines.amount",
            ["“output.lines” is a list and has no property “amount”; its elements are output.lines[0] and so on."],
        ),
        ("steps[1].result", ["“steps[1]” has no property “result”. It has name, output, issues, passed."]),
        ("steps.map(s, s.outputs)", ["“s” has no property “outputs”. Did you mean “output”?"]),
        ("steps[2].output", ["steps[2] can’t be read here: only steps[0] to steps[1] come before this step."]),
    ],
)
def test_a_property_that_cannot_be_there_is_doubted(text: str, expected: list[str] | None) -> None:
    found = doubts(text)
    assert found == expected if expected is not None else len(found) == 1


@pytest.mark.parametrize(
    "text",
    [
        "output.total + output.lines[0].amount > 1.0 && output.supplier.size() > 3",
        "has(output.totl) && output.totl > 1.0",
        "'totl' in output ? output['totl'] : output.total",
        "output[input.key]",
        "'output.totl' == \"output.totl\" // output.totl",
        "output.lines.map(output, output.amount)",
        "output.lines.map(l, l.amount).map(x, x.anything)",
        "{'totl': 1}.totl == 1",
        "input.whatever",
        "previous.whatever.it[0].is",
        "value.labels.whatever",
        "value.labels.map(key, key.anything)",
        "value.anything.at.all",
        "value.root.children[0].children[1].value",
        "value.choice.left == 1.0 || value.choice.right == 1.0",
        "steps[size(steps) - 1].output.whatever",
        "steps[1].issues[0].whatever",
        "steps.filter(s, s.passed).map(s, s.output.whatever)",
    ],
)
def test_what_may_be_there_is_never_doubted(text: str) -> None:
    assert doubts(text) == []


def test_a_property_of_an_object_that_says_it_takes_others_is_not_doubted() -> None:
    assert doubts("input.custmer", input={**OPEN, "additionalProperties": True}) == []


def test_the_offset_is_that_of_the_wrong_part() -> None:
    (doubt,) = find_path_warnings("1.0 <\n  output.totl", schemas={"output": INVOICE})
    assert doubt.offset == len("1.0 <\n  output.")


PIECES = st.sampled_from(
    [
        *("output", "steps", "input", "value", ".lines", ".totl", "[0]", "['x']", "math.abs", "has(output.a)", "size"),
        *(
            ".map(x, x)",
            ".filter(y, y.a)",
            "[",
            "]",
            "(",
            ")",
            "{",
            "}",
            " && ",
            " in ",
            " ? ",
            " : ",
            ", ",
            "'a'",
            "1",
        ),
    ]
)


@given(st.lists(PIECES, max_size=12))
def test_no_expression_that_can_be_read_makes_it_fail(pieces: list[str]) -> None:
    text = "".join(pieces)
    with suppress(ExpressionError):
        doubts(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": True}},
        {"type": "object", "properties": []},
        {"type": ["object", 7], "properties": {"x": 7}},
        {"$ref": "#"},
        {"$ref": "#/$defs/none"},
        {"anyOf": []},
        {"anyOf": [{"$ref": "#"}, 7]},
        {"allOf": [{"type": "object"}]},
        {},
    ],
)
def test_a_schema_that_is_still_being_written_doubts_nothing(schema: dict[str, Any]) -> None:
    assert doubts("output.x.y[0].z + output.x[1]", output=schema) == []
