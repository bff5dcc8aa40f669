"""An earlier definition of a flow becomes its next version."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from flows.engine.plugins import registry
from flows.examples import load_examples
from flows.models import Flow, FlowVersion
from flows.portability import NOTE_LENGTH, load_flow, restore_version
from tests.flows.editor_page import EditorPage
from tests.flows.versioned import read_words, sign_in, store_three_versions, store_version

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


def get_version(flow: Flow, number: int) -> FlowVersion:
    return flow.versions.get(number=number)


def address(flow: Flow, number: int) -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/{number}/restore/"


def restore(client: Client, flow: Flow, number: int, **fields: Any) -> HttpResponse:
    """What comes of a click on the page's button."""
    latest = flow.versions.latest("number").number
    return client.post(address(flow, number), {"latest": latest, **fields}, follow=True)


# Restoring itself


def test_a_restored_version_is_a_new_one_with_the_old_definition() -> None:
    flow, user = store_three_versions(), User.objects.create(username="ada")
    restored = restore_version(version=get_version(flow, 1), by=user, note="The model got better.")
    assert (restored.number, restored.note) == (4, "Restores version 1. The model got better.")
    assert restored.created_by == user
    assert restored.digest == get_version(flow, 1).digest
    assert [step.max_retries for step in flow.steps.all()] == [3]
    flow.refresh_from_db()
    assert flow.live_version == get_version(flow, 1)


def test_every_example_comes_back_the_same() -> None:
    load_examples()
    for flow in Flow.objects.all():
        first = get_version(flow, 1)
        document = first.flow_spec.to_document()
        load_flow(document={**document, "steps": document["steps"][:1], "description": "Another one"})
        assert restore_version(version=first).digest == first.digest


def test_what_is_no_part_of_the_definition_stays() -> None:
    flow = store_three_versions()
    Flow.objects.filter(pk=flow.pk).update(name="renamed", is_archived=True, max_runs_in_flight=7)
    restored = restore_version(version=get_version(flow, 1))
    flow.refresh_from_db()
    assert (flow.name, flow.is_archived, flow.max_runs_in_flight) == ("renamed", True, 7)
    assert (restored.flow, restored.number, restored.spec["name"]) == (flow, 4, "renamed")
    assert Flow.objects.count() == 1


def test_a_schema_that_its_type_would_make_otherwise_now_stays_as_it_was_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    first = get_version(flow, 1)
    load_flow(document={**first.flow_spec.to_document(), "description": "Another one"})
    monkeypatch.setattr("flows.portability.schema_of_type", lambda model: {"type": "object"})
    assert restore_version(version=first).digest == first.digest
    assert flow.steps.get(name="Full suite").output_schema == first.flow_spec.steps[2].output_schema


# Its page


def test_the_button_restores_the_version_and_says_so(editor: Client) -> None:
    flow = store_three_versions()
    response = restore(editor, flow, 2, note="  Better   after all ")
    assert [str(message) for message in response.context["messages"]] == [
        (
            "Version 2 is restored as version 4. New runs still use version 1. "
            f'<a href="/admin/flows/flow/{flow.pk}/versions/4/make-live/">Make version 4 live</a>'
        )
    ]
    assert get_version(flow, 4).note == "Restores version 2. Better after all"
    assert str(get_version(flow, 4).created_by) == "ada"
    assert LogEntry.objects.latest("pk").change_message == "Restored version 2 as version 4."
    assert EditorPage(editor, f"/admin/flows/flow/{flow.pk}/change/").fields["steps-0-max_retries"] == "1"


def test_the_other_button_makes_it_live_as_well(editor: Client) -> None:
    flow = store_three_versions()
    restore(editor, flow, 2, _make_live="")
    flow.refresh_from_db()
    assert flow.live_version == get_version(flow, 4)


def test_the_latest_version_needs_no_restoring(editor: Client) -> None:
    flow = store_three_versions()
    for response in (editor.get(address(flow, 3)), restore(editor, flow, 3)):
        assert "Version 3 is the latest already: there is nothing to restore." in read_words(response)
    restore(editor, flow, 1)
    assert "The latest version, 4, has the definition of version 1 already" in read_words(editor.get(address(flow, 1)))
    assert flow.versions.count() == 4


def test_whoever_saves_meanwhile_is_not_overlooked(editor: Client) -> None:
    flow = store_three_versions()
    store_version(max_retries=9, by=User.objects.create(username="bob"))
    response = editor.post(address(flow, 1), {"latest": "3", "note": "My note"})
    words = read_words(response)
    assert "Version 4 was saved meanwhile by bob. Nothing was restored yet" in words
    assert "max_retries 9 → 3" in words
    assert 'value="My note"' in response.content.decode()
    assert flow.versions.count() == 4


def test_a_flow_that_was_renamed_keeps_its_present_name(editor: Client) -> None:
    flow = store_three_versions()
    Flow.objects.filter(pk=flow.pk).update(name="renamed")
    assert "The flow was called “example” then." in read_words(editor.get(address(flow, 1)))
    restore(editor, flow, 1)
    assert get_version(flow, 4).spec["name"] == "renamed"


def test_what_keeps_a_version_from_running_is_listed_and_nothing_changes(
    editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    load_flow(document={**get_version(flow, 1).flow_spec.to_document(), "description": "Another one"})
    monkeypatch.delitem(registry.output_types, "colour_suite")
    for response in (editor.get(address(flow, 1)), restore(editor, flow, 1)):
        words = read_words(response)
        assert "Step 3 “Full suite”, output_type: No output type is registered as “colour_suite”." in words
        assert "Restore version 1</button>" not in response.content.decode()
    assert flow.versions.count() == 2


def test_a_definition_that_can_no_longer_be_read_is_not_restored(editor: Client) -> None:
    flow = store_three_versions()
    FlowVersion.objects.create(flow=flow, number=0, spec={"name": "example", "colour": "red"}, digest="x" * 64)
    for response in (editor.get(address(flow, 0)), restore(editor, flow, 0)):
        assert response.status_code == 200
        assert "Unknown field “colour”." in read_words(response)
    assert flow.versions.count() == 4


def test_a_note_that_is_too_long_is_refused_and_kept(editor: Client) -> None:
    flow = store_three_versions()
    note = "x" * NOTE_LENGTH
    response = restore(editor, flow, 1, note=note)
    assert "The note has 500 characters; at most 480 are allowed." in read_words(response)
    assert note in response.content.decode()
    assert flow.versions.count() == 3
    restore(editor, flow, 1, note="x" * 480)
    assert len(get_version(flow, 4).note) == NOTE_LENGTH


@pytest.mark.parametrize("latest", ["", "x", "99999999999999999999", "-1", "3\0"])
def test_a_post_made_by_hand_changes_nothing(editor: Client, latest: str) -> None:
    flow = store_three_versions()
    assert editor.post(address(flow, 1), {"latest": latest, "note": "a\0b"}).status_code == 200
    assert editor.post(address(flow, 1)).status_code == 200
    assert flow.versions.count() == 3


def test_only_those_who_may_change_flows_restore_versions(client: Client) -> None:
    flow = store_three_versions()
    sign_in(client, "view_flow", "view_flowversion")
    assert client.get(address(flow, 1)).status_code == 403
    assert client.post(address(flow, 1), {"latest": "3"}).status_code == 403
    assert flow.versions.count() == 3
