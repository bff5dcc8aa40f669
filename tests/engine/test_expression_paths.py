"""Paths of expressions that lead nowhere by the schemas: what gets a warning, and what never does."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.expression_paths import find_field_warnings
from flows.engine.spec_check import AUDIT_EXPRESSIONS, MAX_PATH_WARNINGS, find_warnings
from tests.engine.builders import INVOICE, TEXT_SCHEMA, closed, make_flow, make_step

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


def warn(text: str, output: Any = INVOICE, *, field: str = "rule", **more: Any) -> list[str]:
    """The warnings about an expression of step 3 over an open input, an invoice of step 1 and a tree of step 2."""
    schemas = {0: OPEN, 1: INVOICE, 2: TREE, 3: output}
    return [warning.message for warning in find_field_warnings(field, text, step=3, schemas=schemas, **more)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output.totl > 1.0", "“output” has no property “totl”. Did you mean “total”?"),
        ("output['totl'] > 1.0", "“totl”"),
        ("output.lines[0].amuont", "“output.lines[0]” has no property “amuont”."),
        ("{'a': [output.zzz]}", "It has supplier, total, lines."),
        ("math.abs(output.totl) > 1.0", "“totl”"),
        ("output.lines.all(line, line.amuont > 0.0)", "“line” has no property “amuont”."),
        ("output.supplier.name", "string"),
        ("output.lines.amount", "output.lines[0]"),
        ("input.custmer", "“customer”?"),
        ("steps[1].output.totl", "“steps[1].output” has no property “totl”."),
        ("steps[2].output.root.children[0].children[1].valu", "“value”?"),
        ("steps[2].output.choice.middle", "It has left, right."),
        ("steps[1].result", "It has name, output, issues, passed."),
        ("steps.map(s, s.outputs)", "“output”?"),
        ("steps.output", "“steps” is a list"),
        ("steps[3].output", "only steps[0] to steps[2]"),
    ],
)
def test_a_property_that_cannot_be_there_gets_a_warning(text: str, words: str) -> None:
    (message,) = warn(text)
    assert words in message


@pytest.mark.parametrize(
    "text",
    [
        "output.total + output.lines[0].amount > 1.0 && output.supplier.size() > 3",
        "has(output.totl) && output.totl > 1.0",
        "'totl' in output ? output['totl'] : output.total",
        "output[input.key]",
        "'output.totl' == \"output.totl\" // output.totl",
        "output.lines.map(l, l.amount).map(l, l.anything)",
        "output.lines.map(l, l.amount) == [1.0] && [{'b': 1}].map(l, l.b) == [1]",
        "{'totl': 1}.totl == 1",
        "input.whatever",
        "steps[2].output.labels.whatever == steps[2].output.anything.at.all",
        "steps[2].output.labels.map(key, key.anything)",
        "steps[2].output.choice.left == 1.0 || steps[2].output.choice.right == 1.0",
        "steps[size(steps) - 1].output.whatever",
        "steps[1].issues[0].whatever",
        "steps.filter(s, s.passed).map(s, s.output.whatever)",
    ],
)
def test_what_may_be_there_never_gets_one(text: str) -> None:
    assert warn(text) == []


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {**INVOICE, "additionalProperties": True},
        {"type": "object", "properties": {"x": True}},
        {"type": ["object", 7], "properties": {"x": 7}},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, 7]},
        {"allOf": [{"type": "object"}]},
        {},
    ],
)
def test_a_schema_that_is_open_or_still_being_written_gives_none(schema: Any) -> None:
    assert warn("output.x.y[0].z == output.x[1] && output.totl == 1", schema) == []


def test_the_offset_is_that_of_the_wrong_part() -> None:
    (warning,) = find_field_warnings("rule", "1.0 <\n  output.totl", step=1, schemas={1: INVOICE})
    assert warning.offset == len("1.0 <\n  output.")


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("output.lines", 1),
        ("output.lines.filter(line, line.amount < (20.0))", 1),
        ("output.lines.filter(a, true) + output.other.filter(b, true)", 0),
        ("output.lines.map(line, line.amount)", 0),
        ("python:find_lines", 0),
    ],
)
def test_an_item_is_an_element_of_a_rule_that_is_one_path(rule: str, count: int) -> None:
    assert len(warn("item.amuont", field="message", rule=rule)) == count
    assert len(warn("{item.amuont} of {item.amount}", field="message_template", rule=rule)) == count


def test_previous_of_a_local_step_is_what_its_input_expression_made() -> None:
    assert len(warn("{'a': previous.totl}", field="input_expression")) == 1
    local = make_step(2, input_expression="{'words': 3}", compute="{'twice': previous.words * 2}")
    assert find_warnings(make_flow(make_step(1), local)) == []


@pytest.mark.parametrize("field", ["compute", "input_expression", *AUDIT_EXPRESSIONS])
def test_every_field_of_a_flow_is_held_against_the_schemas(field: str) -> None:
    if field in AUDIT_EXPRESSIONS:
        audits = [{"name": "Tone", "rule": "true"}, {"name": "Length", "rule": "true", field: "steps[7].output.text"}]
        flow, path = make_flow(make_step(audits=audits)), f"/steps/0/audits/1/{field}"
    else:
        flow, path = make_flow(make_step(1), make_step(2, **{field: "{'a': steps[7].output}"})), f"/steps/1/{field}"
    (warning,) = find_warnings(flow)
    assert warning.path == path


def test_what_names_a_function_or_can_not_be_read_has_no_paths() -> None:
    assert find_warnings(make_flow(make_step(output_sanitizer="python:tidy", input_expression="steps[9"))) == []


def test_of_many_warnings_the_first_are_shown_and_the_rest_counted() -> None:
    audits = [{"name": f"a{number}", "rule": "output.nothing == 1"} for number in range(MAX_PATH_WARNINGS + 3)]
    warnings = find_warnings(make_flow(make_step(output_schema=TEXT_SCHEMA, audits=audits)))
    assert len(warnings) == MAX_PATH_WARNINGS + 1
    assert warnings[-1].message.startswith("3 more paths lead nowhere")
