"""What the rows of flows promise, whatever writes, publishes or loads them."""

from __future__ import annotations

from copy import deepcopy
from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from flows.engine import spec_check
from flows.engine.json_values import dump_json
from flows.engine.spec import MAX_AUDITS, FlowSpec
from flows.flow_file import FlowFileError
from flows.models import Flow, FlowDraft, FlowVersion, ImmutableVersionError
from flows.portability import parse_flow_file, plan_load
from flows.publishing import publish_flow
from tests.engine.builders import closed, make_flow, make_step
from tests.flows.loading import load_flow
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


def test_the_number_of_a_deleted_version_is_not_used_again() -> None:
    flow = make_version().flow
    for number in (2, 3):
        newest = publish_flow(spec=make_flow(make_step(max_retries=number)))
        assert newest.number == number
    for how in (newest.delete, flow.versions.filter(number=2).delete):
        how()
    spec = make_flow(make_step(max_retries=0))
    assert (plan_load(spec).number, publish_flow(spec=spec).number) == (4, 4)


def test_a_version_of_another_flow_cannot_be_live() -> None:
    version = make_version()
    with pytest.raises(ValueError, match="belongs to another flow"):
        Flow.objects.create(name="other", title="Other").make_live(version)


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


SPEC = make_flow(title="Tea", description="Hot.")


def test_the_first_version_goes_live_and_later_ones_are_made_of_changes_only() -> None:
    ada = User.objects.create_user("ada")
    first = publish_flow(spec=SPEC, by=ada, note="A start.")
    flow = Flow.objects.get()
    assert (first.number, first.created_by, first.note, flow.live_version) == (1, ada, "A start.", first)
    assert (flow.name, flow.title, flow.description) == ("example", "Tea", "Hot.")
    assert publish_flow(spec=SPEC) == publish_flow(spec=SPEC, flow=flow) == first
    second = publish_flow(spec=make_flow(make_step(max_retries=0)))
    flow.refresh_from_db()
    assert (second.number, flow.live_version, flow.title, flow.description) == (2, first, "example", "")


@pytest.mark.django_db(transaction=True)
def test_many_who_publish_at_once_make_one_version() -> None:
    failures: list[Exception] = []

    def publish() -> None:
        try:
            publish_flow(spec=SPEC)
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
