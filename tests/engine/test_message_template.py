"""Messages of audits written as text with paths in braces."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import ExpressionError
from flows.engine.message_template import MAX_VALUE_LENGTH, parse_template
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from flows.engine.spec_check import check_spec, find_warnings
from tests.engine.builders import INVOICE, make_flow, make_step

VARIABLES: dict[str, Any] = {
    "item": {"number": 3, "level": "C1", "score": 0.5, "ok": True, "note": None, "größe": 4, "tags": ["a", {"b": 1.5}]},
    "output": {"lines": [{"text": "Paper"}, {"text": "Tape"}]},
    "input": "A line.\nAnother.",
    "steps": [],
}


def render(text: str, **variables: Any) -> str:
    return parse_template(text).render({**VARIABLES, **variables})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Nothing in braces.", "Nothing in braces."),
        ("Clause {item.number}: {item.level} does not fit {item.score}", "Clause 3: C1 does not fit 0.5"),
        ("{output.lines[1].text} is on line { item.number }", "Tape is on line 3"),
        ("{item.ok} {item.note} {item.tags} {item.tags[1].b}", 'true null ["a",{"b":1.5}] 1.5'),
        ("{item.größe} cm", "4 cm"),
        ("{input}", "A line.\nAnother."),
        ("{{item.number}} and {{{item.number}}}", "{item.number} and {3}"),
        (
            "{item.nmae} {item.number.x} {output.lines[2].text} {output.lines.text} {steps[0].output} {item[0]}",
            "? ? ? ? ? ?",
        ),
    ],
)
def test_paths_become_values_and_those_that_lead_nowhere_a_question_mark(template: str, message: str) -> None:
    assert render(template) == message


@pytest.mark.parametrize(("value", "text"), [(3.0, "3"), (-0.5, "-0.5"), (1e300, "1e+300"), (10**20, str(10**20))])
def test_numbers_are_written_as_in_json_and_whole_ones_without_a_fraction(value: float, text: str) -> None:
    assert render("{item}", item=value) == text


def test_a_long_value_is_cut() -> None:
    message = render("{item}!", item=["x" * 10_000])
    assert len(message) == MAX_VALUE_LENGTH + 1
    assert message.endswith("…!")


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ("Clause {item.number", (1, 8)),
        ("Clause\n item.number}", (2, 13)),
        ("{size(item)}", (1, 2)),
        ("{ item.price:.2f }", (1, 3)),
        ("{}", (1, 2)),
        ("{previous.text}", (1, 2)),
    ],
)
def test_what_is_no_path_is_refused_with_its_place(template: str, place: tuple[int, int]) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(template)
    assert (caught.value.line, caught.value.column) == place


def test_a_path_that_can_not_be_there_is_a_warning_as_saving_shows_it() -> None:
    rule, template = "output.lines.filter(line, line.amount < 1.0)", "{item.text} {item.größe} {item.amuont}"
    audit = AuditSpec(name="Cheap", rule=rule, message_template=template)
    flow = make_flow(make_step(output_schema=INVOICE, audits=(audit,)))
    (warning,) = find_warnings(flow)
    assert warning.path == "/steps/0/audits/0/message_template"
    assert "“amount”?" in warning.message
    assert check_spec(flow, Registry()) == []
