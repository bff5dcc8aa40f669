"""From rows to immutable versions."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from flows.engine.errors import SpecError
from flows.models import AuditRule, Flow, FlowVersion
from flows.publishing import publish_flow
from tests.engine.builders import TEXT_SCHEMA

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def make_rows(**fields: Any) -> Flow:
    """A stored flow with one step and one audit; ``fields`` are the step's."""
    flow = Flow.objects.create(name="tea", title="Tea")
    step = {"name": "Brew", "tool_name": "brew", "output_schema": TEXT_SCHEMA, **fields}
    AuditRule.objects.create(step=flow.steps.create(**step), name="Not empty", rule="output.text != ''")
    return flow


def test_the_first_version_goes_live_and_later_ones_are_made_of_changes_only() -> None:
    flow, ada = make_rows(), User.objects.create_user("ada")
    first = publish_flow(flow=flow, by=ada, note="A start.")
    assert (first.number, first.created_by, first.note) == (1, ada, "A start.")
    assert flow.live_version == Flow.objects.get().live_version == first
    assert publish_flow(flow=flow) == first
    flow.steps.update(max_retries=0)
    second = publish_flow(flow=flow)
    assert (second.number, second.digest != first.digest) == (2, True)
    assert Flow.objects.get().live_version == first


def test_a_flow_that_cannot_run_is_not_published_and_all_problems_are_listed() -> None:
    flow = make_rows(tool_name="", include_results=[1])
    AuditRule.objects.update(rule="outputs.text")
    with pytest.raises(SpecError) as refusal:
        publish_flow(flow=flow)
    paths = [problem.path for problem in refusal.value.problems]
    assert paths == ["/steps/0/tool_name", "/steps/0/include_results/0", "/steps/0/audits/0/rule"]
    assert not FlowVersion.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_who_publish_at_once_make_one_version() -> None:
    flow = make_rows()
    failures: list[Exception] = []

    def publish() -> None:
        try:
            publish_flow(flow=Flow.objects.get(pk=flow.pk))
        except Exception as error:  # noqa: BLE001  # the assertion below shows it
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
