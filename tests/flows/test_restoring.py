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

pytestmark = pytest.mark.django_db


def get_version(flow: Flow, number: int) -> FlowVersion:
    return flow.versions.get(number=number)


def address(flow: Flow, number: int) -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/{number}/restore/"


def restore(client: Client, flow: Flow, number: int, **fields: Any) -> HttpResponse:
    """What comes of a click on the page's button."""
    latest = flow.versions.latest("number").number
    return client.post(address(flow, number), {"latest": latest, **fields}, follow=True)


def load_changed_theme() -> Flow:
    """The example flow whose last step has a registered type, with a second version."""
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    load_flow(document={**get_version(flow, 1).flow_spec.to_document(), "description": "Another one"})
    return flow


def test_a_restored_version_is_a_new_one_with_the_old_definition() -> None:
    flow, user = store_three_versions(), User.objects.create(username="ada")
    Flow.objects.filter(pk=flow.pk).update(name="renamed", is_archived=True, max_runs_in_flight=7)
    restored = restore_version(version=get_version(flow, 1), by=user, note="The model got better.")
    assert (restored.number, restored.note) == (4, "Restores version 1. The model got better.")
    assert (restored.created_by, restored.spec) == (user, {**get_version(flow, 1).spec, "name": "renamed"})
    assert [step.max_retries for step in flow.steps.all()] == [3]
    flow.refresh_from_db()
    assert flow.live_version == get_version(flow, 1)
    assert (flow.name, flow.is_archived, flow.max_runs_in_flight) == ("renamed", True, 7)
    assert Flow.objects.count() == 1


def test_a_schema_that_its_type_would_make_otherwise_now_stays_as_it_was_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = load_changed_theme()
    first = get_version(flow, 1)
    monkeypatch.setattr("flows.publishing.schema_of_type", lambda model: {"type": "object"})
    assert restore_version(version=first).digest == first.digest
    assert flow.steps.get(name="Full suite").output_schema == first.flow_spec.steps[2].output_schema


# Its page


def test_the_button_restores_the_version_and_says_so(editor: Client) -> None:
    flow = store_three_versions()
    response = restore(editor, flow, 2, note="  Better   after all ")
    (message,) = map(str, response.context["messages"])
    assert f'href="/admin/flows/flow/{flow.pk}/versions/4/make-live/"' in message
    restored = get_version(flow, 4)
    assert (restored.note, str(restored.created_by)) == ("Restores version 2. Better after all", "ada")
    assert LogEntry.objects.latest("pk").change_message == "Restored version 2 as version 4."
    assert EditorPage(editor, f"/admin/flows/flow/{flow.pk}/change/").fields["steps-0-max_retries"] == "1"
    restore(editor, flow, 1, _make_live="")
    flow.refresh_from_db()
    assert flow.live_version == get_version(flow, 5)


def test_the_latest_version_needs_no_restoring(editor: Client) -> None:
    flow = store_three_versions()
    for response in (editor.get(address(flow, 3)), restore(editor, flow, 3)):
        assert "Version 3 is the latest already" in read_words(response)
    restore(editor, flow, 1)
    assert "The latest version, 4, has the definition of version 1" in read_words(editor.get(address(flow, 1)))
    assert flow.versions.count() == 4


def test_a_version_that_was_saved_meanwhile_is_shown_first(editor: Client) -> None:
    flow = store_three_versions()
    store_version(max_retries=9, by=User.objects.create(username="bob"))
    response = editor.post(address(flow, 1), {"latest": "3", "note": "My note"})
    words = read_words(response)
    assert "Version 4 was saved meanwhile by bob." in words and "max_retries 9 → 3" in words
    assert 'value="My note"' in response.content.decode()
    assert flow.versions.count() == 4


def test_what_keeps_a_version_from_running_is_listed_and_nothing_changes(
    editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = load_changed_theme()
    monkeypatch.delitem(registry.output_types, "colour_suite")
    FlowVersion.objects.create(flow=flow, number=0, spec={"name": "colour-theme", "colour": "red"}, digest="x" * 64)
    for number, problem in ((1, "Step 3 “Full suite”, output_type: "), (0, "Unknown field “colour”.")):
        for response in (editor.get(address(flow, number)), restore(editor, flow, number)):
            assert problem in read_words(response)
            assert f"Restore version {number}</button>" not in response.content.decode()
    assert flow.versions.count() == 3


def test_a_note_that_is_too_long_is_refused_and_kept(editor: Client) -> None:
    flow = store_three_versions()
    note = "x" * NOTE_LENGTH
    assert note in restore(editor, flow, 1, note=note).content.decode()
    assert flow.versions.count() == 3
    restore(editor, flow, 1, note="x" * 480)
    assert len(get_version(flow, 4).note) == NOTE_LENGTH


@pytest.mark.parametrize("fields", [{}, *({"latest": latest} for latest in ("", "x", "9" * 20, "-1", "3\0"))])
def test_a_post_made_by_hand_changes_nothing(editor: Client, fields: dict[str, str]) -> None:
    flow = store_three_versions()
    assert editor.post(address(flow, 1), {**fields, "note": "a\0b"}).status_code == 200
    assert flow.versions.count() == 3


def test_only_those_who_may_change_flows_restore_versions(client: Client) -> None:
    flow = store_three_versions()
    sign_in(client, "view_flow", "view_flowversion")
    assert client.get(address(flow, 1)).status_code == 403
    assert client.post(address(flow, 1), {"latest": "3"}).status_code == 403
    assert flow.versions.count() == 3
