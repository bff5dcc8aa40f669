"""Which flows use which plug-ins, and which of the names are not registered."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from flows.plugin_use import AUDIT, FUNCTION, OUTPUT_TYPE, fetch_flow_uses, find_missing_names, list_uses
from tests.engine.builders import make_flow, make_step
from tests.runs.builders import make_version

FLOW = make_flow(
    make_step(
        1,
        output_type="letter",
        audits=(
            AuditSpec(name="Long", rule="size(output.text) > 3", message="'python: is no name here'"),
            AuditSpec(name="Polite", rule="python:polite", message="python:say_why", path="'/text'"),
        ),
    ),
    make_step(2, compute="python:count", pass_expression="python:all_well"),
)


def test_every_field_that_names_a_plug_in_is_listed_with_its_place() -> None:
    assert [(use.kind, use.name, use.place, use.anchor) for use in list_uses(FLOW)] == [
        (OUTPUT_TYPE, "letter", "step 1 “Step 1”, output type", "/steps/0/output_type"),
        (AUDIT, "polite", "step 1 “Step 1”, audit “Polite”, rule", "/steps/0/audits/1/rule"),
        (FUNCTION, "say_why", "step 1 “Step 1”, audit “Polite”, message", "/steps/0/audits/1/message"),
        (FUNCTION, "count", "step 2 “Step 2”, compute", "/steps/1/compute"),
        (FUNCTION, "all_well", "step 2 “Step 2”, pass expression", "/steps/1/pass_expression"),
    ]
    assert list(list_uses(FLOW.to_document())) == list(list_uses(FLOW))


@pytest.mark.parametrize("document", [{}, {"steps": None}, {"steps": [1, {"audits": 7, "compute": 3}]}])
def test_documents_of_another_form_name_nothing(document: dict[str, Any]) -> None:
    assert list(list_uses(document)) == []


def test_what_is_missing_is_what_the_registry_lacks() -> None:
    registry = Registry()
    registry.function("count")(lambda: {"text": ""})
    registry.audit("say_why")(lambda: True)  # an audit is no function
    missing = [use.what for use in find_missing_names(FLOW, registry)]
    assert missing == [
        "the output type “letter”",
        "the audit “polite”",
        "the function “say_why”",
        "the function “all_well”",
    ]


@pytest.mark.django_db
class TestFlows:
    def test_the_live_version_and_the_latest_are_told_apart(self) -> None:
        make_version(make_flow(make_step(1, compute="python:ancient")))
        live = make_flow(make_step(1, compute="python:both"), make_step(2, compute="python:old"))
        latest = make_flow(make_step(1, compute="python:both"), make_step(3, name="Third", compute="python:new"))
        version = make_version(live)
        flow = make_version(latest).flow
        flow.make_live(version)
        assert [(one.use.name, one.is_live, one.is_latest) for one in fetch_flow_uses()] == [
            ("both", True, True),
            ("old", True, False),
            ("new", False, True),
        ]
        assert flow.live_version is not None
        assert [use.name for use in find_missing_names(flow)] == ["both", "new"]
        assert [use.name for use in find_missing_names(flow.live_version)] == ["both", "old"]
