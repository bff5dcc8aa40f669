"""What the rows of flows promise, whatever writes to them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from flows.models import Flow, FlowDraft, FlowVersion, ImmutableVersionError
from tests.runs.builders import make_version

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def test_a_version_never_changes_and_its_number_is_given_once() -> None:
    version = make_version()
    version.note = "Changed"
    copy = {"flow": version.flow, "number": 1, "spec": version.spec, "digest": version.digest}
    for change in (
        version.save,
        lambda: FlowVersion.objects.update(note="Changed"),
        lambda: FlowVersion.objects.bulk_update([version], ["note"]),
        lambda: FlowVersion.objects.bulk_create([version], update_conflicts=True),
        version.delete,  # it is live
    ):
        with pytest.raises(ImmutableVersionError):
            change()
    for new in (FlowVersion(**copy), FlowVersion(pk=version.pk, **copy)):
        with pytest.raises(IntegrityError), transaction.atomic():
            new.save()
    assert FlowVersion.objects.get().note == ""


def test_a_version_of_another_flow_cannot_be_live() -> None:
    version = make_version()
    with pytest.raises(ValueError, match="belongs to another flow"):
        Flow.objects.create(name="other", title="Other").make_live(version)


def test_runnable_flows_have_a_live_version_and_are_not_archived() -> None:
    flow = make_version().flow
    Flow.objects.create(name="draft", title="Draft")
    assert list(Flow.objects.runnable()) == [flow]
    Flow.objects.update(is_archived=True)
    assert list(Flow.objects.runnable()) == []


@pytest.mark.parametrize("name", ["Invoice", "in voice", "invoice_1", "-invoice", "invoice-", "a--b", "é", ""])
def test_a_name_that_does_not_fit_into_addresses_is_refused(name: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Flow(name=name, title="Invoice").full_clean()
    assert list(refusal.value.message_dict) == ["name"]


@pytest.mark.parametrize(
    "value",
    [
        {"zeta": 1, "alpha": {"y": 2, "x": 3}},
        {"text": "a\u0000b 😀 é", "number": 1.5, "big": 2**70, "none": None, "list": [1, "2", {"b": 1, "a": 2}]},
        {},
    ],
)
def test_json_comes_back_as_it_was_stored_in_the_order_of_its_keys(value: Any) -> None:
    user, flow = User.objects.create_user("ada"), make_version().flow
    FlowDraft.objects.create(user=user, document=value)
    FlowDraft.objects.bulk_create([FlowDraft(user=user, flow=flow, document={"a": 1})])
    FlowDraft.objects.filter(flow=flow).update(document=value)
    stored = list(FlowDraft.objects.values_list("document", flat=True))
    assert list(map(repr, stored)) == [repr(value)] * 2


def test_each_user_has_one_draft_of_a_flow_and_one_of_a_new_one() -> None:
    user, flow = User.objects.create_user("ada"), make_version().flow
    for of in (flow, None):
        FlowDraft.objects.create(user=user, flow=of, document={})
        with pytest.raises(IntegrityError), transaction.atomic():
            FlowDraft.objects.create(user=user, flow=of, document={})
