"""Flows from files: what is wrong with them, and what loading them would do."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from flows.engine import spec_check
from flows.engine.json_values import dump_json
from flows.engine.plugins import registry
from flows.engine.spec import MAX_AUDITS, FlowSpec
from flows.engine.typed_output import schema_of_type
from flows.flow_file import FlowFileError, render_flow
from flows.models import Flow
from flows.portability import parse_flow_file, plan_load
from flows.publishing import find_contradictions
from tests.engine.builders import closed
from tests.flows.loading import load_flow

pytestmark = pytest.mark.django_db

SCHEMA = closed(zeta={"type": "string"}, alpha={"type": "number"})
DOCUMENT: dict[str, Any] = {
    "name": "letters",
    "title": "Letters",
    "model": "gpt-4.1",
    "cost_budget": 0.5,
    "steps": [
        {
            "name": "Write",
            "tool_name": "write_letter",
            "output_schema": SCHEMA,
            "temperature": 0.5,
            "audits": [
                {"name": "Short", "rule": "size(output.zeta) < 10"},
                {"name": "Positive", "rule": "output.alpha > 0.0", "severity": "medium"},
                {"name": "Words", "for_each": "output.zeta.split(' ')", "rule": "size(item) < 9 || index > 3"},
            ],
        },
        {"name": "Count", "compute": "{'length': size(input.text)}"},
    ],
}


def make_document(step: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The flow with changes, and with changes of its first step."""
    document = deepcopy(DOCUMENT) | changes
    document["steps"][0].update(step or {})
    return document


def make_typed_document(**fields: Any) -> dict[str, Any]:
    return make_document(steps=[{"name": "Suite", "tool_name": "build", "output_type": "colour_suite", **fields}])


def test_a_file_is_told_all_its_problems_and_nothing_is_stored() -> None:
    text = render_flow(FlowSpec.from_document(make_document(model="nowhere:gpt", cost_budget=2)))
    with pytest.raises(FlowFileError) as refusal:
        parse_flow_file(text.replace("title: Letters", f"title: {'T' * 201}").replace("output.alpha", "outputs.alpha"))
    paths = [problem.path for problem in refusal.value.problems]
    assert paths == ["/title", "/model", "/steps/0/audits/1/rule"]
    assert refusal.value.problems[0].line == 5
    assert not Flow.objects.exists()


@pytest.mark.parametrize("counts", [[2_000], [MAX_AUDITS] * 20, [3, 200]])
def test_the_rules_of_too_many_audits_are_not_parsed(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[Any] = []
    monkeypatch.setattr(spec_check, "parse_expression", lambda text, **options: rules.append(text))
    steps = [
        {"name": f"{step}", "tool_name": "a", "audits": [{"name": f"{one}", "rule": "("} for one in range(count)]}
        for step, count in enumerate(counts)
    ]
    with pytest.raises(FlowFileError, match="has at most"):
        parse_flow_file(dump_json({"name": "many", "steps": steps}))
    assert rules == []


def test_the_schema_of_a_registered_type_is_left_to_the_type_where_both_are_the_same() -> None:
    schema = schema_of_type(registry.output_types["colour_suite"].model)
    typed = load_flow(document=make_typed_document())
    assert load_flow(document=make_typed_document(output_schema=schema)) == typed
    assert typed.flow_spec.steps[0].output_schema == schema
    assert list(find_contradictions(FlowSpec.from_document(make_typed_document(output_schema=schema)))) == []


def test_a_plan_says_what_a_load_then_does() -> None:
    spec = FlowSpec.from_document(make_document(title=""))
    plan = plan_load(spec)
    assert (plan.flow, plan.latest, plan.number, plan.is_unchanged) == (None, None, 1, False)
    assert not Flow.objects.exists()
    version = load_flow(document=spec.to_document())
    assert (version.digest, version.flow.title) == (plan.spec.digest, "letters")
    again = plan_load(spec)
    assert (again.flow, again.latest, again.number, again.is_unchanged) == (version.flow, version, 1, True)
    changed = plan_load(FlowSpec.from_document(make_document(description="Other")))
    assert (changed.number, changed.is_unchanged) == (2, False)
