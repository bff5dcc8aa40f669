"""Loading a flow from a document, and what that does to those who have it open."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from flows.engine.errors import SpecError
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec
from flows.engine.typed_output import schema_of_type
from flows.examples import load_documents
from flows.flow_file import FlowFileError, write_flow
from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow, plan_load, read_flow_file
from flows.publishing import find_contradictions

pytestmark = pytest.mark.django_db

SCHEMA = {
    "type": "object",
    "properties": {"zeta": {"type": "string"}, "alpha": {"type": "number"}},
    "required": ["zeta", "alpha"],
    "additionalProperties": False,
}


def make_document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "letters",
        "title": "Letters",
        "model": "gpt-4.1",
        "steps": [
            {
                "name": "Write",
                "tool_name": "write_letter",
                "output_schema": SCHEMA,
                "temperature": 0.5,
                "audits": [
                    {"name": "Short", "rule": "size(output.zeta) < 10"},
                    {"name": "Positive", "rule": "output.alpha > 0.0", "severity": "medium"},
                ],
            },
            {"name": "Count", "compute": "{'length': size(previous.zeta)}", "include_results": [1]},
        ],
        **changes,
    }


def load_error(document: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_flow(document=document)
    return caught.value


def test_a_loaded_flow_is_published_live_and_stands_in_the_editor_s_rows() -> None:
    user = User.objects.create(username="ada")
    version = load_flow(document=make_document(), by=user, note="From the archive")
    flow = Flow.objects.get(name="letters")
    assert flow.live_version == version
    assert (version.number, version.note, version.created_by) == (1, "From the archive", user)
    write, count = flow.steps.all()
    assert (write.name, write.temperature, write.output_schema) == ("Write", 0.5, SCHEMA)
    assert [audit.name for audit in write.audits.all()] == ["Short", "Positive"]
    assert (count.compute, count.include_results) == ("{'length': size(previous.zeta)}", [1])


@pytest.mark.parametrize("name", ["colour-theme", "invoice-extraction", "support-ticket-triage"])
def test_what_was_loaded_is_what_runs(name: str) -> None:
    document = load_documents()[name]
    stored = load_flow(document=document).flow_spec
    meant = FlowSpec.from_document(document)
    types = {step.output_type: step.output_schema for step in stored.steps if step.output_type}
    assert all(types.values())
    unfrozen = [step.model_copy(update={"output_schema": None}) if step.output_type else step for step in stored.steps]
    assert stored.model_copy(update={"steps": tuple(unfrozen)}) == meant


def test_the_same_document_again_makes_no_new_version_and_keeps_the_rows() -> None:
    first = load_flow(document=make_document())
    keys = list(StepDefinition.objects.values_list("pk", flat=True))
    assert load_flow(document=make_document(), note="again") == first
    assert FlowVersion.objects.count() == 1
    assert list(StepDefinition.objects.values_list("pk", flat=True)) == keys


def test_steps_and_audits_that_are_gone_from_the_document_are_gone_from_the_rows() -> None:
    load_flow(document=make_document())
    changed = make_document()
    changed["steps"] = [{**changed["steps"][0], "temperature": None, "audits": changed["steps"][0]["audits"][1:]}]
    load_flow(document=changed)
    assert StepDefinition.objects.get().temperature is None
    assert AuditRule.objects.get().name == "Positive"


def test_an_order_that_an_editor_gave_to_the_rows_gives_way_to_the_document_s() -> None:
    document = make_document()
    document["steps"][1]["compute"] = "{'length': size(input.text)}"
    flow = load_flow(document=document).flow
    flow.steps.filter(name="Write").update(position=7)
    assert load_flow(document=document).number == 1
    assert [step.name for step in flow.steps.all()] == ["Write", "Count"]


def test_a_document_without_a_title_gets_the_name_as_title() -> None:
    document = make_document()
    del document["title"]
    assert load_flow(document=document).flow.title == "letters"
    assert load_flow(document=document).number == 1


def test_all_problems_are_told_at_once_and_nothing_is_stored() -> None:
    document = make_document(title="T" * 201)
    document["steps"][0]["audits"][0]["rule"] = "size(output.zeta) <"
    document["steps"][1]["compute"] = "{'length': size(letter)}"
    error = load_error(document)
    assert [problem.path for problem in error.problems] == [
        "/steps/0/audits/0/rule",
        "/steps/1/compute",
        "/title",
    ]
    assert not Flow.objects.exists()


def test_a_bad_document_leaves_the_flow_that_is_there_untouched() -> None:
    version = load_flow(document=make_document())
    error = load_error(make_document(title="Changed", steps=[{"name": "Nothing"}]))
    assert {problem.path for problem in error.problems} == {"/steps/0/tool_name", "/steps/0/output_schema"}
    flow = Flow.objects.get()
    assert (flow.title, flow.steps.count(), flow.live_version) == ("Letters", 2, version)


def test_a_registered_type_keeps_the_schema_that_the_document_froze() -> None:
    frozen = {**SCHEMA, "description": "As it was then"}
    document = make_document()
    document["steps"][0].update(output_type="colour_suite", output_schema=frozen)
    assert load_flow(document=document).flow_spec.steps[0].output_schema == frozen


# ---------------------------------------------------------------------------------------------------------------
# Registered types


def make_typed_document(schema: dict[str, Any] | None = None) -> dict[str, Any]:
    document = make_document()
    frozen = {} if schema is None else {"output_schema": schema}
    document["steps"] = [{"name": "Suite", "tool_name": "build", "output_type": "colour_suite", **frozen}]
    return document


def test_the_schema_of_a_registered_type_is_left_to_the_type_where_both_are_the_same() -> None:
    schema = schema_of_type(registry.output_types["colour_suite"].model)
    typed = load_flow(document=make_typed_document())
    assert load_flow(document=make_typed_document(schema)) == typed
    assert StepDefinition.objects.get().output_schema is None
    assert typed.flow_spec.steps[0].output_schema == schema
    assert list(find_contradictions(FlowSpec.from_document(make_typed_document()))) == []


# ---------------------------------------------------------------------------------------------------------------
# Who has the flow open


def test_a_load_that_changes_something_raises_the_revision_once() -> None:
    flow = load_flow(document=make_document()).flow
    assert Flow.objects.get().revision == 1
    load_flow(document=make_document(description="Now with a description"))
    assert Flow.objects.get().revision == 2
    # The definition is the same, the draft is not: somebody's page shows the old order.
    flow.steps.filter(name="Write").update(max_retries=7)
    assert load_flow(document=make_document(description="Now with a description")).number == 2
    assert Flow.objects.get().revision == 3


def test_a_load_that_changes_nothing_leaves_no_trace() -> None:
    load_flow(document=make_document(cost_budget=0.5, temperature=1))
    before = Flow.objects.values().get()
    load_flow(document=make_document(cost_budget=0.5, temperature=1))
    assert Flow.objects.values().get() == before


def test_another_order_of_a_schema_s_properties_is_a_change() -> None:
    load_flow(document=make_document())
    document = make_document()
    properties = document["steps"][0]["output_schema"]["properties"]
    turned = {**SCHEMA, "properties": dict(reversed(properties.items()))}
    document["steps"][0]["output_schema"] = turned
    assert load_flow(document=document).number == 2
    stored = Flow.objects.get().steps.get(name="Write").output_schema
    assert list(stored["properties"]) == ["alpha", "zeta"]


# ---------------------------------------------------------------------------------------------------------------
# What a load would do


def test_a_plan_says_what_a_load_then_does() -> None:
    spec = FlowSpec.from_document(make_document(title=""))
    plan = plan_load(spec)
    assert (plan.flow, plan.latest, plan.number, plan.is_unchanged) == (None, None, 1, False)
    assert not Flow.objects.exists()
    version = load_flow(document=spec.to_document())
    assert version.digest == plan.spec.digest
    again = plan_load(spec)
    assert (again.flow, again.latest, again.number, again.is_unchanged) == (version.flow, version, 1, True)
    changed = plan_load(FlowSpec.from_document(make_document(description="Other")))
    assert (changed.number, changed.is_unchanged) == (2, False)


def test_a_file_is_also_checked_for_what_the_database_can_hold() -> None:
    text = write_flow(FlowSpec.from_document(make_document(title="T" * 201, model="m" * 201)))
    with pytest.raises(FlowFileError) as caught:
        read_flow_file(text)
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [(5, "/title"), (6, "/model")]
