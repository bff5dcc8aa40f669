"""What the rows of flows promise, whoever writes to them."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from flows.models import Flow, FlowVersion, ImmutableVersionError, StepDefinition
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


def test_a_version_never_changes() -> None:
    version = make_version()
    version.note = "Changed"
    with pytest.raises(ImmutableVersionError):
        version.save()
    with pytest.raises(ImmutableVersionError):
        FlowVersion.objects.update(note="Changed")
    with pytest.raises(ImmutableVersionError):
        FlowVersion.objects.bulk_update([version], ["note"])
    assert FlowVersion.objects.get().note == ""


def test_the_live_version_cannot_be_deleted() -> None:
    version = make_version()
    with pytest.raises(ImmutableVersionError):
        version.delete()


def test_a_version_with_runs_cannot_be_deleted_and_neither_can_its_flow() -> None:
    version = make_version()
    make_version(make_flow(title="Next"))
    make_run(version)
    with pytest.raises(ProtectedError):
        FlowVersion.objects.get(pk=version.pk).delete()
    with pytest.raises(ProtectedError):
        version.flow.delete()


def test_a_number_is_given_once_for_each_flow() -> None:
    version = make_version()
    with pytest.raises(IntegrityError), transaction.atomic():
        FlowVersion.objects.create(flow=version.flow, number=1, spec=version.spec, digest=version.digest)


def test_a_version_of_another_flow_cannot_be_live() -> None:
    version = make_version()
    other = Flow.objects.create(name="other", title="Other")
    with pytest.raises(ValueError, match="belongs to another flow"):
        other.make_live(version)


def test_runnable_flows_have_a_live_version_and_are_not_archived() -> None:
    flow = make_version().flow
    Flow.objects.create(name="draft", title="Draft")
    assert list(Flow.objects.runnable()) == [flow]
    Flow.objects.update(is_archived=True)
    assert list(Flow.objects.runnable()) == []


@pytest.mark.parametrize("name", ["Invoice", "in voice", "invoice_1", "-invoice", "invoice-", "a--b", "é", ""])
def test_a_name_that_does_not_fit_into_addresses_is_refused(name: str) -> None:
    with pytest.raises(ValidationError) as error:
        Flow(name=name, title="Invoice").full_clean()
    assert list(error.value.message_dict) == ["name"]


@pytest.mark.parametrize(
    "value",
    [
        {"zeta": 1, "alpha": {"y": 2, "x": 3}},
        {"text": "a\u0000b 😀 é", "number": 1.5, "big": 2**70, "none": None, "list": [1, "2", {"b": 1, "a": 2}]},
        {},
        None,
    ],
)
def test_json_comes_back_as_it_was_stored_in_the_order_of_its_keys(value: Any) -> None:
    step = StepDefinition.objects.create(flow=make_version().flow, name="Step", output_schema=value)
    step.refresh_from_db()
    assert step.output_schema == value
    assert str(step.output_schema) == str(value)
    assert StepDefinition.objects.filter(output_schema__isnull=True).exists() == (value is None)


def test_json_keeps_its_order_when_many_rows_are_stored_at_once() -> None:
    flow = make_version().flow
    schemas = [{"b": 1, "a": 2}, {"d": 3, "c": 4}]
    StepDefinition.objects.bulk_create(
        StepDefinition(flow=flow, name=str(number), output_schema=schema) for number, schema in enumerate(schemas)
    )
    StepDefinition.objects.filter(name="0").update(output_schema={"z": 1, "a": 2})
    stored = StepDefinition.objects.order_by("name").values_list("output_schema", flat=True)
    assert [list(schema) for schema in stored] == [["z", "a"], ["d", "c"]]
