"""A flow with runs is archived instead of deleted; lists leave it out, and it can be taken out again."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.examples import load_examples
from flows.models import Flow, FlowVersion
from tests.engine.builders import make_flow
from tests.flows.editor_page import EditorPage, open_flow
from tests.flows.loading import load_flow
from tests.flows.versioned import read_words
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    """The page of a flow that has run."""
    page = open_flow(editor, title="Tea")
    make_run(FlowVersion.objects.get())
    return page


def press(client: Client, page: EditorPage, address: str = "archive") -> list[str]:
    """Press the button; gives the messages that come."""
    answer = client.post(page.url.replace("/change/", f"/{address}/"), follow=True)
    assert answer.status_code == 200
    return [str(message) for message in answer.context["messages"]]


def read_log() -> list[str]:
    return list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))


def is_archived() -> bool:
    return Flow.objects.get().is_archived


def test_the_page_for_deleting_says_why_a_flow_with_runs_stays_and_offers_to_archive_it(
    opened: EditorPage, editor: Client
) -> None:
    url = opened.url.replace("/change/", "/delete/")
    words = read_words(editor.get(url))
    assert "“Tea” has runs" in words and "Archive it" in words
    editor.post(url, {"post": "yes"})
    assert Flow.objects.exists()
    press(editor, opened)
    assert "Archive it" not in read_words(editor.get(url)), "it is already"
    user = User.objects.create_user("vera", password="secret", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_flow", "delete_flow"]))
    Flow.objects.update(is_archived=False)
    editor.force_login(user)
    words = read_words(editor.get(url))
    assert ("has runs" in words, "Archive it" in words) == (True, False)


def test_archiving_and_taking_out_are_asked_told_logged_once_and_shown_in_the_editor(
    opened: EditorPage, editor: Client
) -> None:
    assert "Archive “Tea”?" in read_words(editor.get(opened.url.replace("/change/", "/archive/")))
    assert not is_archived()
    assert press(editor, opened) == ["“Tea” is archived: no new runs can be started. Runs in progress continue."]
    press(editor, opened)
    assert (is_archived(), read_log()) == (True, ["Archived."])
    words = read_words(editor.get(opened.url))
    assert "This flow is archived." in words and "Unarchive" in words
    assert press(editor, opened, "take-out") == ["“Tea” is unarchived."]
    assert (is_archived(), read_log()) == (False, ["Archived.", "Unarchived."])
    assert "This flow is archived." not in read_words(editor.get(opened.url))
    for number in ("0", "99999999999999999999"):
        for address in ("archive", "take-out"):
            assert editor.post(f"/admin/flows/flow/{number}/{address}/").status_code == 404


def test_an_archived_flow_can_be_edited_and_loaded_and_stays_archived(opened: EditorPage, editor: Client) -> None:
    press(editor, opened)
    # The page was opened before.
    opened.document["title"] = "Green tea"
    assert opened.save() == ["Saved as version 2. The flow is archived: no new runs can be started."]
    load_flow(document=make_flow(title="Tea", description="New.").to_document())
    assert (FlowVersion.objects.count(), is_archived()) == (3, True)


@pytest.mark.parametrize(
    ("query", "active", "archived"),
    [
        ("", True, False),
        ("?is_archived__exact=0", True, False),
        ("?is_archived__exact=1", False, True),
        ("?is_archived__exact=nonsense", True, True),
        ("?q=tea", False, False),
        ("?q=tea&is_archived__exact=all", False, True),
    ],
)
def test_the_list_leaves_archived_flows_out_unless_one_asks_for_them(
    editor: Client, query: str, active: bool, archived: bool
) -> None:
    load_examples()
    load_flow(document=make_flow(title="Old tea").to_document())
    Flow.objects.filter(title="Old tea").update(is_archived=True)
    titles = {flow.title for flow in editor.get(f"/admin/flows/flow/{query}").context["cl"].result_list}
    assert ("Old tea" in titles, bool(titles - {"Old tea"})) == (archived, active)
