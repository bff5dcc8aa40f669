"""A file with far more audits than a flow may have costs little to refuse."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine import spec_check
from flows.engine.json_values import dump_json
from flows.engine.spec import MAX_AUDITS, MAX_AUDITS_OF_FLOW
from flows.flow_file import FlowFileError
from flows.portability import read_flow_file

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

OUTPUT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def write_flow(*counts: int) -> str:
    """A flow whose steps have so many audits, all of them broken."""
    steps = [
        {
            "name": f"Step {number}",
            "tool_name": "write_a",
            "output_schema": OUTPUT,
            "audits": [{"name": f"Audit {index}", "rule": "("} for index in range(count)],
        }
        for number, count in enumerate(counts, start=1)
    ]
    return dump_json({"name": "many", "title": "Many", "input_schema": OUTPUT, "steps": steps})


@pytest.mark.parametrize(
    ("counts", "looked_at"),
    [([2_000], MAX_AUDITS), ([MAX_AUDITS] * 20, MAX_AUDITS_OF_FLOW), ([3, 200], MAX_AUDITS + 3)],
)
def test_only_as_many_are_looked_at_as_there_may_be(
    counts: list[int], looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = []
    parse = spec_check.parse_expression

    def note(text: str, *args: Any, **options: Any) -> Any:
        rules.append(text)
        return parse(text, *args, **options)

    monkeypatch.setattr(spec_check, "parse_expression", note)
    with pytest.raises(FlowFileError) as caught:
        read_flow_file(write_flow(*counts))
    assert rules.count("(") == looked_at
    assert any("Join some" in problem.message for problem in caught.value.problems)
