"""A file with far more audits than a flow may have costs little to refuse."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine import spec_check
from flows.engine.json_values import dump_json
from flows.engine.spec import MAX_AUDITS, MAX_AUDITS_OF_FLOW
from flows.flow_file import FlowFileError
from flows.portability import parse_flow_file

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("counts", "parsed"),
    [([2_000], MAX_AUDITS), ([MAX_AUDITS] * 20, MAX_AUDITS_OF_FLOW), ([3, 200], MAX_AUDITS + 3)],
)
def test_no_more_are_parsed_than_a_flow_may_have(
    counts: list[int], parsed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, parse = [], spec_check.parse_expression

    def note(text: str, *args: Any, **options: Any) -> Any:
        rules.append(text)
        return parse(text, *args, **options)

    monkeypatch.setattr(spec_check, "parse_expression", note)
    steps = [
        {"name": f"{step}", "tool_name": "a", "audits": [{"name": f"{one}", "rule": "("} for one in range(count)]}
        for step, count in enumerate(counts)
    ]
    with pytest.raises(FlowFileError):
        parse_flow_file(dump_json({"name": "many", "steps": steps}))
    assert rules.count("(") == parsed
