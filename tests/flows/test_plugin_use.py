"""Which flows use which plug-ins, and which of the names nobody registers."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import AuditRule, Flow
from flows.plugin_use import AUDIT, FUNCTION, OUTPUT_TYPE, find_flow_uses, find_missing_names, list_uses
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step
from tests.runs.builders import make_version

AUDITS = (
    AuditSpec(name="Long", rule="size(output.text) > 3", message="'python: is no name here'"),
    AuditSpec(name="Polite", rule="python:polite", message="python:say_why", path="'/text'"),
)
FLOW = make_flow(
    make_step(1, output_type="letter", audits=AUDITS),
    make_step(2, compute="python:count", pass_expression="python:all_well"),
)


def describe(uses: Any) -> list[tuple[str, str, str]]:
    return [(use.kind, use.name, use.place) for use in uses]


ALL = [
    (OUTPUT_TYPE, "letter", "step 1 “Step 1”, output type"),
    (AUDIT, "polite", "step 1 “Step 1”, audit “Polite”, rule"),
    (FUNCTION, "say_why", "step 1 “Step 1”, audit “Polite”, message"),
    (FUNCTION, "count", "step 2 “Step 2”, compute"),
    (FUNCTION, "all_well", "step 2 “Step 2”, pass expression"),
]


class TestUses:
    def test_every_field_that_names_a_plug_in_is_listed(self) -> None:
        assert describe(list_uses(FLOW)) == ALL
        assert describe(list_uses(FLOW.to_document())) == ALL

    def test_each_leads_to_its_field_in_the_editor(self) -> None:
        assert [use.anchor for use in list_uses(FLOW)] == [
            "id_steps-0-output_type",
            "id_steps-0-audits-1-rule",
            "id_steps-0-audits-1-message",
            "id_steps-1-compute",
            "id_steps-1-pass_expression",
        ]

    @pytest.mark.parametrize("document", [{}, {"steps": None}, {"steps": [1, {"audits": 7, "compute": 3}]}])
    def test_documents_of_another_make_name_nothing(self, document: dict[str, Any]) -> None:
        assert list(list_uses(document)) == []

    def test_what_is_missing_is_what_the_registry_lacks(self) -> None:
        registry = Registry()
        registry.function("count")(lambda: {"text": ""})
        registry.audit("say_why")(lambda: True)  # an audit is no function
        words = [use.what for use in find_missing_names(FLOW, registry)]
        assert words == [
            "the output type “letter”",
            "the audit “polite”",
            "the function “say_why”",
            "the function “all_well”",
        ]


@pytest.mark.django_db
class TestFlows:
    def make_flow(self, live: FlowSpec, draft: str = "", name: str = "example") -> Flow:
        flow = make_version(live.model_copy(update={"name": name})).flow
        step = flow.steps.create(name="Step 1", output_schema=TEXT_SCHEMA, tool_name="one", compute=draft)
        AuditRule.objects.create(step=step, name="Short", rule="true")
        return flow

    def test_the_live_version_and_the_editor_are_told_apart(self) -> None:
        live = make_flow(make_step(1, compute="python:both"), make_step(2, compute="python:old"))
        flow = self.make_flow(live, draft="python:both")
        flow.steps.create(name="Third", compute="python:new", position=2)
        assert [(one.use.name, one.is_live, one.is_draft) for one in find_flow_uses()] == [
            ("both", True, True),
            ("old", True, False),
            ("new", False, True),
        ]

    def test_an_earlier_version_counts_no_more(self) -> None:
        make_version(make_flow(make_step(1, compute="python:old")))
        make_version(make_flow())
        assert find_flow_uses() == []

    def test_what_a_flow_lacks_is_what_its_editor_shows(self) -> None:
        flow = self.make_flow(make_flow(make_step(1, compute="python:old")), draft="python:new")
        assert [use.name for use in find_missing_names(flow)] == ["new"]
        assert flow.live_version is not None
        assert [use.name for use in find_missing_names(flow.live_version)] == ["old"]

    def test_queries_do_not_grow_with_flows(self, django_assert_num_queries: Any) -> None:
        for number in range(4):
            self.make_flow(make_flow(make_step(1, compute="python:old")), "python:new", f"flow-{number}")
        with django_assert_num_queries(4):
            assert len(find_flow_uses()) == 8
