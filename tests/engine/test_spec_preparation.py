"""What else happens to a flow on its way to a run: warnings are given, schemas frozen, settings filled in."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings
from flows.engine.spec_check import find_warnings, freeze_schemas, prepare_spec
from flows.engine.typed_output import schema_of_type
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step


class Report(BaseModel):
    title: str
    pages: int


class Scores(BaseModel):
    by_name: dict[str, int]


def audit(name: str = "Length", rule: str = "true", **fields: Any) -> AuditSpec:
    return AuditSpec(name=name, rule=rule, **fields)


class TestWarnings:
    def find(self, *steps: Any) -> dict[str, str]:
        return {warning.path: warning.message for warning in find_warnings(make_flow(*steps))}

    def test_including_the_input_is_warned_about(self) -> None:
        warnings = self.find(make_step(1), make_step(2, include_results=(0, 1)))
        assert warnings.keys() == {"/steps/1/include_results"}
        assert "Step 2 “Step 2” includes the results of step 0" in warnings["/steps/1/include_results"]
        assert "input_expression" in warnings["/steps/1/include_results"]


class TestFreezing:
    @staticmethod
    def make_registry() -> Registry:
        registry = Registry()
        registry.output_type("report")(Report)
        return registry

    def test_the_schema_of_a_registered_type_is_written_into_its_step(self) -> None:
        flow = make_flow(make_step(output_type="report", output_schema=None))
        frozen = freeze_schemas(flow, self.make_registry())
        assert frozen.step(1).output_schema == schema_of_type(Report)
        assert flow.step(1).output_schema is None, "the flow itself stays as it was"
        assert FlowSpec.from_document(frozen.to_document()) == frozen

    def test_a_schema_that_is_there_already_is_not_replaced(self) -> None:
        flow = make_flow(make_step(output_type="report", output_schema=TEXT_SCHEMA))
        assert freeze_schemas(flow, self.make_registry()) == flow

    def test_a_change_of_the_type_later_changes_no_frozen_flow(self) -> None:
        frozen = freeze_schemas(make_flow(make_step(output_type="report", output_schema=None)), self.make_registry())

        class Report(BaseModel):
            headline: str

        changed = Registry()
        changed.output_type("report")(Report)
        prepared = prepare_spec(frozen, registry=changed, defaults=ModelSettings(model="m"))
        assert prepared.step(1).output_schema == frozen.step(1).output_schema

    def test_what_cannot_be_frozen_stays_as_it_is_for_the_check_to_report(self) -> None:
        registry = self.make_registry()
        registry.output_type("scores")(Scores)
        flow = make_flow(
            make_step(1, output_type="missing", output_schema=None),
            make_step(2, output_type="scores", output_schema=None),
        )
        assert freeze_schemas(flow, registry) == flow

    def test_a_prepared_flow_is_frozen_and_every_model_step_knows_its_model(self) -> None:
        flow = make_flow(
            make_step(1, output_type="report", output_schema=None, model=None),
            make_step(2, compute="{}"),
            model="gpt-4.1",
        )
        prepared = prepare_spec(
            flow, registry=self.make_registry(), defaults=ModelSettings(model="default", temperature=0.5)
        )
        assert prepared.step(1).output_schema == schema_of_type(Report)
        assert (prepared.step(1).model, prepared.step(1).temperature) == ("gpt-4.1", 0.5)
        assert prepared.step(2).model is None


def test_the_digest_is_that_of_the_document_also_after_its_schema_was_changed() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    spec = make_flow(make_step(output_schema=schema))
    before = spec.digest
    schema["properties"]["text"] = {"type": "string"}
    assert spec.digest != before
    assert spec.digest == FlowSpec.from_document(spec.to_document()).digest
