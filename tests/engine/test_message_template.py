"""Messages of audits written as text with paths in braces."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import ExpressionError
from flows.engine.message_template import MAX_VALUE_LENGTH, parse_template
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from flows.engine.spec_check import check_spec, find_warnings
from tests.engine.builders import INVOICE, closed, make_flow, make_step

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
    ("template", "problem"),
    [
        ("Clause {item.number", "Line 1, column 8: the “{” that opens here is never closed; “{{” gives the character"),
        ("Clause\n item.number}", "Line 2, column 13: the “}” that stands here closes nothing; “}}” gives the char"),
        ("{size(item)}", "Line 1, column 2: “size(item)” is not a path such as item.name"),
        ("{ item.price:.2f }", "Line 1, column 3: “item.price:.2f” is not a path"),
        ("{}", "Line 1, column 2: “” is not a path"),
        (
            "{previous.text}",
            "Line 1, column 2: there is no variable “previous”; available: input, item, ",
        ),
    ],
)
def test_what_is_no_path_is_refused_with_its_place(template: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(template)
    assert str(caught.value).startswith(problem)


class TestSaving:
    @staticmethod
    def make(rule: str, template: str, **fields: Any) -> Any:
        audit = AuditSpec(name="Cheap", rule=rule, message_template=template, **fields)
        return make_flow(
            make_step(output_schema=INVOICE, audits=(audit,)), input_schema=closed(plan={"type": "string"})
        )

    def test_a_template_that_can_not_be_read_is_a_problem_of_its_field(self) -> None:
        (problem,) = check_spec(self.make("false", "{item"), Registry())
        assert problem.path == "/steps/0/audits/0/message_template"
        assert problem.message.startswith("Line 1, column 1: ")

    def test_an_audit_has_a_template_or_a_message(self) -> None:
        (problem,) = check_spec(self.make("false", "Too cheap.", message="'Too cheap.'"), Registry())
        assert problem.path == "/steps/0/audits/0/message_template"

    def test_a_path_that_can_not_be_there_is_a_warning(self) -> None:
        flow = self.make("output.lines.filter(line, line.amount < 1.0)", "{item.text} {item.größe} {item.amuont}")
        (warning,) = find_warnings(flow)
        assert warning.path == "/steps/0/audits/0/message_template"
        assert "Did you mean “amount”?" in warning.message
        assert check_spec(flow, Registry()) == []
