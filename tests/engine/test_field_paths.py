"""Paths that lead nowhere in the expressions of a whole flow."""

from __future__ import annotations

import pytest

from flows.engine.field_paths import find_field_warnings
from flows.engine.spec_check import AUDIT_EXPRESSIONS, find_warnings
from tests.engine.builders import INVOICE, TEXT_SCHEMA, make_flow, make_step


@pytest.mark.parametrize("field", ["compute", "input_expression"])
def test_a_step_out_of_reach_is_doubted_in_every_field_of_a_step(field: str) -> None:
    (doubt,) = find_warnings(make_flow(make_step(1), make_step(2, **{field: "{'a': steps[2].output}"})))
    assert doubt.path == f"/steps/1/{field}"
    assert doubt.message == (
        f"Step 2 “Step 2”, {field.replace('_', ' ')}: steps[2] can’t be read here: "
        "only steps[0] to steps[1] come before this step."
    )


@pytest.mark.parametrize("field", AUDIT_EXPRESSIONS)
def test_a_step_out_of_reach_is_doubted_in_every_field_of_an_audit(field: str) -> None:
    audits = [{"name": "Tone", "rule": "true"}, {"name": "Length", "rule": "true", field: "steps[7].output.text"}]
    (doubt,) = find_warnings(make_flow(make_step(audits=audits)))
    assert doubt.path == f"/steps/0/audits/1/{field}"
    assert doubt.message.startswith(f"Step 1 “Step 1”, audit “Length”, {field}: steps[7] can’t be read here")


def test_every_variable_is_held_against_the_schema_of_its_step() -> None:
    schemas = {0: TEXT_SCHEMA, 1: INVOICE}
    for text in ("previous.total", "input.text", "steps[1].output.total", "steps[0].output.text", "{'a': 1}"):
        assert find_field_warnings("input_expression", text, step=2, schemas=schemas) == [], text
    for text in ("previous.text", "input.total", "steps[1].output.text", "steps[0].output.total"):
        assert len(find_field_warnings("input_expression", text, step=2, schemas=schemas)) == 1, text


def test_previous_of_a_local_step_is_what_its_input_expression_made() -> None:
    local = make_step(2, input_expression="{'words': 3}", compute="{'twice': previous.words * 2}")
    assert find_warnings(make_flow(make_step(1), local)) == []


def test_a_step_whose_schema_is_not_known_is_not_doubted() -> None:
    local = make_step(1, compute="{'dish': 'soup'}")
    assert find_warnings(make_flow(local, make_step(2, input_expression="{'a': steps[1].output.dish}"))) == []


def test_what_names_a_function_or_can_not_be_read_has_no_paths() -> None:
    assert find_warnings(make_flow(make_step(output_sanitizer="python:tidy", input_expression="steps[9"))) == []
