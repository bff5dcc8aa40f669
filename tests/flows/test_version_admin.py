"""Versions in the admin: to read, one of them live; what must be kept can't be deleted."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.models import Flow, FlowVersion
from tests.flows.editor_page import EditorPage, open_flow
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    """The page of a flow with two versions, the first of them live."""
    page = open_flow(editor)
    page.fill("steps-0-", max_retries=1)
    page.save()
    return page


def address(flow: Flow, number: int) -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/{number}/make-live/"


def read_live(flow: Flow) -> int:
    flow.refresh_from_db()
    assert flow.live_version is not None
    return flow.live_version.number


def test_make_live_asks_first_and_then_does_it(opened: EditorPage, editor: Client) -> None:
    flow = Flow.objects.get()
    asked = editor.get(address(flow, 2))
    assert "They will use version 2" in asked.content.decode()
    assert read_live(flow) == 1
    done = editor.post(address(flow, 2), follow=True)
    assert [str(message) for message in done.context["messages"]] == [
        "Version 2 is live: new runs use it. Runs under way keep theirs."
    ]
    assert read_live(flow) == 2


def test_an_earlier_version_can_be_made_live_again(opened: EditorPage, editor: Client) -> None:
    flow = Flow.objects.get()
    editor.post(address(flow, 2))
    editor.post(address(flow, 1))
    assert read_live(flow) == 1


@pytest.mark.parametrize("number", [3, 99999999999999999999])
def test_a_version_that_there_is_not_cannot_be_made_live(opened: EditorPage, editor: Client, number: int) -> None:
    flow = Flow.objects.get()
    assert editor.post(address(flow, number)).status_code == 404
    assert read_live(flow) == 1


def test_only_those_who_may_change_flows_make_versions_live(opened: EditorPage, client: Client) -> None:
    viewer = User.objects.create_user("vera", password="secret", is_staff=True)
    viewer.user_permissions.add(*Permission.objects.filter(codename__in=["view_flow", "view_flowversion"]))
    client.force_login(viewer)
    flow = Flow.objects.get()
    assert client.post(address(flow, 2)).status_code == 403
    assert client.get(address(flow, 2)).status_code == 403
    assert read_live(flow) == 1
    assert "make-live" not in client.get(f"/admin/flows/flow/{flow.pk}/change/").content.decode()


def test_the_flow_page_lists_versions_with_their_author_and_runs(opened: EditorPage, editor: Client) -> None:
    make_run(FlowVersion.objects.get(number=1))
    content = editor.get(opened.url)
    first, second = content.context["versions"]
    assert (first.number, first.run_count, str(first.created_by)) == (2, 0, "ada")
    assert (second.number, second.run_count) == (1, 1)
    assert "Version 1 is live" in content.content.decode()


def test_a_version_shows_its_definition_and_cannot_be_changed(opened: EditorPage, editor: Client) -> None:
    version = FlowVersion.objects.get(number=2)
    url = f"/admin/flows/flowversion/{version.pk}/change/"
    content = editor.get(url).content.decode()
    assert "&quot;max_retries&quot;: 1" in content
    assert "<textarea" not in content
    assert editor.post(url, {"number": 7}).status_code == 403
    assert editor.get("/admin/flows/flowversion/add/").status_code == 403


def test_a_version_that_never_ran_can_be_deleted(opened: EditorPage, editor: Client) -> None:
    version = FlowVersion.objects.get(number=2)
    editor.post(f"/admin/flows/flowversion/{version.pk}/delete/", {"post": "yes"})
    assert [version.number for version in FlowVersion.objects.all()] == [1]


@pytest.mark.parametrize(
    ("number", "has_runs", "sentence"), [(1, False, "is live. Make another version live first."), (2, True, "has runs")]
)
def test_a_version_that_is_live_or_has_runs_stays(
    opened: EditorPage, editor: Client, number: int, has_runs: bool, sentence: str
) -> None:
    version = FlowVersion.objects.get(number=number)
    if has_runs:
        make_run(version)
    url = f"/admin/flows/flowversion/{version.pk}/delete/"
    for answer in (editor.get(url), editor.post(url, {"post": "yes"})):
        assert answer.status_code == 200
        assert sentence in answer.content.decode()
    assert FlowVersion.objects.count() == 2


def test_a_flow_with_runs_stays_and_one_is_told_what_to_do_instead(opened: EditorPage, editor: Client) -> None:
    flow = Flow.objects.get()
    make_run(FlowVersion.objects.get(number=1))
    answer = editor.post(f"/admin/flows/flow/{flow.pk}/delete/", {"post": "yes"})
    assert "Archive the flow instead" in answer.content.decode()
    assert Flow.objects.exists()


def test_a_run_that_starts_while_a_flow_is_being_deleted_wins(
    opened: EditorPage, editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow.objects.get()
    make_run(FlowVersion.objects.get(number=1))
    # The check before came too early to see the run.
    monkeypatch.setattr("flows.admin.flow_admin.is_referred_to", lambda row: False)
    monkeypatch.setattr("django.contrib.admin.options.get_deleted_objects", lambda *args: ([], {}, set(), []))
    answer = editor.post(f"/admin/flows/flow/{flow.pk}/delete/", {"post": "yes"}, follow=True)
    assert [str(message) for message in answer.context["messages"]] == ["Not deleted: it was put to use just now."]
    assert Flow.objects.exists()


def test_a_flow_without_runs_can_be_deleted_with_all_its_versions(opened: EditorPage, editor: Client) -> None:
    flow = Flow.objects.get()
    assert editor.post(f"/admin/flows/flow/{flow.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Flow.objects.exists()
    assert not FlowVersion.objects.exists()


def test_a_version_leads_to_the_others_and_to_its_difference_from_the_live_one(
    opened: EditorPage, editor: Client, client: Client
) -> None:
    flow = Flow.objects.get()
    live, latest = (FlowVersion.objects.get(number=number) for number in (1, 2))
    flow_address = f"/admin/flows/flow/{flow.pk}/versions/"
    content = editor.get(f"/admin/flows/flowversion/{latest.pk}/change/").content.decode()
    assert f'href="{flow_address}"' in content
    assert f'href="{flow_address}compare/?from=live&amp;to=2"' in content
    assert f'href="{flow_address}2/restore/"' in content
    assert "compare/" not in editor.get(f"/admin/flows/flowversion/{live.pk}/change/").content.decode()
    viewer = User.objects.create_user("vera", password="secret", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_flowversion"))
    client.force_login(viewer)
    content = client.get(f"/admin/flows/flowversion/{latest.pk}/change/").content.decode()
    assert "/versions/" not in content
