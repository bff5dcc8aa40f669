"""A file with far more audits than a flow may have costs little to refuse."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine import spec_check
from flows.engine.json_values import dump_json
from flows.engine.spec import MAX_AUDITS
from flows.flow_file import FlowFileError
from flows.portability import parse_flow_file

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("counts", [[2_000], [MAX_AUDITS] * 20, [3, 200]])
def test_the_rules_of_too_many_are_not_parsed(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[Any] = []
    monkeypatch.setattr(spec_check, "parse_expression", lambda text, **options: rules.append(text))
    steps = [
        {"name": f"{step}", "tool_name": "a", "audits": [{"name": f"{one}", "rule": "("} for one in range(count)]}
        for step, count in enumerate(counts)
    ]
    with pytest.raises(FlowFileError, match="has at most"):
        parse_flow_file(dump_json({"name": "many", "steps": steps}))
    assert rules == []
