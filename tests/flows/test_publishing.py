"""From rows to immutable versions."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from flows.engine.errors import SpecError
from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.publishing import publish_flow
from tests.engine.builders import TEXT_SCHEMA

pytestmark = pytest.mark.django_db


def make_rows(**fields: Any) -> Flow:
    """A stored flow with one step and one audit; ``fields`` are the step's."""
    flow = Flow.objects.create(name="tea", title="Tea")
    step = StepDefinition.objects.create(
        **{"flow": flow, "name": "Brew", "tool_name": "brew", "output_schema": TEXT_SCHEMA, **fields}
    )
    AuditRule.objects.create(step=step, name="Not empty", rule="output.text != ''")
    return flow


def test_the_first_version_goes_live_by_itself_and_knows_its_author() -> None:
    flow = make_rows()
    ada = User.objects.create_user("ada")
    version = publish_flow(flow=flow, by=ada, note="A start.")
    assert (version.number, version.created_by, version.note) == (1, ada, "A start.")
    assert flow.live_version == version
    assert Flow.objects.get().live_version == version


def test_nothing_new_makes_no_version() -> None:
    flow = make_rows()
    assert publish_flow(flow=flow) == publish_flow(flow=flow)
    assert FlowVersion.objects.count() == 1


def test_a_change_makes_the_next_number_and_leaves_the_live_one() -> None:
    flow = make_rows()
    first = publish_flow(flow=flow)
    flow.steps.update(max_retries=0)
    second = publish_flow(flow=flow)
    assert second.number == 2
    assert second.digest != first.digest
    assert Flow.objects.get().live_version == first


def test_another_order_of_properties_is_another_definition() -> None:
    properties = {"reasoning": {"type": "string"}, "answer": {"type": "string"}}
    schema = {**TEXT_SCHEMA, "properties": properties, "required": ["reasoning", "answer"]}
    flow = make_rows(output_schema=schema)
    first = publish_flow(flow=flow)
    step = StepDefinition.objects.get()
    step.output_schema = {**schema, "properties": dict(reversed(properties.items()))}
    step.save()
    assert publish_flow(flow=flow).digest != first.digest


def test_a_flow_that_cannot_run_is_not_published_and_all_problems_are_told() -> None:
    flow = make_rows(tool_name="", include_results=[1])
    AuditRule.objects.update(rule="outputs.text")
    with pytest.raises(SpecError) as error:
        publish_flow(flow=flow)
    assert [problem.path for problem in error.value.problems] == [
        "/steps/0/tool_name",
        "/steps/0/include_results/0",
        "/steps/0/audits/0/rule",
    ]
    assert not FlowVersion.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_who_publish_at_once_make_one_version() -> None:
    flow = make_rows()
    failures: list[Exception] = []

    def publish() -> None:
        try:
            publish_flow(flow=Flow.objects.get(pk=flow.pk))
        except Exception as error:  # noqa: BLE001  # told by the assertion below
            failures.append(error)
        finally:
            connection.close()

    threads = [Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [version.number for version in FlowVersion.objects.all()] == [1]
