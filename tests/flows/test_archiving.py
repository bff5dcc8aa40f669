"""A flow with runs is archived instead of deleted; lists leave it out, and it can be taken out again."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.examples import load_examples
from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from tests.engine.builders import make_flow
from tests.flows.editor_page import EditorPage, PageReader, open_flow
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db

LIST = "/admin/flows/flow/"


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    """The page of a flow that has run."""
    page = open_flow(editor, title="Tea")
    make_run(FlowVersion.objects.get())
    return page


def sign_in(client: Client, *codenames: str) -> None:
    """Sign in somebody who has these permissions alone."""
    user = User.objects.create_user("vera", password="secret", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client.force_login(user)


def read(client: Client, url: str) -> str:
    return " ".join(PageReader(client.get(url).content.decode()).text.split())


def archive(client: Client, page: EditorPage, address: str = "archive") -> list[str]:
    """Press the button; gives the messages that come."""
    answer = client.post(page.url.replace("/change/", f"/{address}/"), follow=True)
    assert answer.status_code == 200
    return [str(message) for message in answer.context["messages"]]


def is_archived() -> bool:
    return Flow.objects.get().is_archived


class TestDeletePage:
    def test_it_says_why_a_flow_with_runs_stays_and_offers_to_archive_it(
        self, opened: EditorPage, editor: Client
    ) -> None:
        url = opened.url.replace("/change/", "/delete/")
        words = read(editor, url)
        assert "“Tea” has runs, and history is kept." in words
        assert "Archive it" in words
        assert opened.url.replace("/change/", "/archive/") in editor.get(url).content.decode()
        editor.post(url, {"post": "yes"})
        assert Flow.objects.exists()

    def test_one_that_is_archived_already_is_not_offered_it(self, opened: EditorPage, editor: Client) -> None:
        archive(editor, opened)
        assert "Archive it" not in read(editor, opened.url.replace("/change/", "/delete/"))

    def test_who_may_delete_but_not_change_flows_is_not_offered_it(self, opened: EditorPage, client: Client) -> None:
        sign_in(client, "view_flow", "delete_flow")
        words = read(client, opened.url.replace("/change/", "/delete/"))
        assert "has runs" in words
        assert "Archive it" not in words


class TestArchive:
    def test_it_is_told_logged_and_shown_in_the_editor(self, opened: EditorPage, editor: Client) -> None:
        assert archive(editor, opened) == ["“Tea” is archived: no new runs can be started. Runs under way go on."]
        assert is_archived()
        assert LogEntry.objects.latest("pk").change_message == "Archived."
        words = read(editor, opened.url)
        assert "This flow is archived." in words
        assert "Take it out of the archive" in words

    def test_taking_it_out_is_told_and_logged_too(self, opened: EditorPage, editor: Client) -> None:
        archive(editor, opened)
        assert archive(editor, opened, "take-out") == ["“Tea” is out of the archive."]
        assert not is_archived()
        assert LogEntry.objects.latest("pk").change_message == "Taken out of the archive."
        assert "This flow is archived." not in read(editor, opened.url)

    def test_doing_it_twice_is_logged_once(self, opened: EditorPage, editor: Client) -> None:
        for _ in range(2):
            archive(editor, opened)
        assert LogEntry.objects.count() == 1

    def test_opening_the_address_asks_and_changes_nothing(self, opened: EditorPage, editor: Client) -> None:
        assert "Archive “Tea”?" in read(editor, opened.url.replace("/change/", "/archive/"))
        assert editor.get(opened.url.replace("/change/", "/take-out/"))["Location"] == opened.url
        assert not is_archived()

    @pytest.mark.parametrize("address", ["archive", "take-out"])
    def test_only_those_who_may_change_flows_do_it(self, opened: EditorPage, client: Client, address: str) -> None:
        Flow.objects.update(is_archived=address == "take-out")
        sign_in(client, "view_flow", "delete_flow", "add_flow")
        url = opened.url.replace("/change/", f"/{address}/")
        assert client.post(url).status_code == 403
        assert is_archived() == (address == "take-out")
        assert "Take it out" not in read(client, opened.url)
        client.logout()
        assert client.post(url).status_code == 302
        assert is_archived() == (address == "take-out")

    @pytest.mark.parametrize("number", ["0", "99999", "99999999999999999999"])
    def test_a_flow_that_there_is_not_is_not_found(self, opened: EditorPage, editor: Client, number: str) -> None:
        for address in ("archive", "take-out"):
            assert editor.post(f"{LIST}{number}/{address}/").status_code == 404
        assert editor.get(f"{LIST}{number}/archive/").status_code == 404

    def test_another_site_cannot_press_the_button(self, opened: EditorPage) -> None:
        careful = Client(enforce_csrf_checks=True)
        careful.force_login(User.objects.get(username="ada"))
        assert careful.post(opened.url.replace("/change/", "/archive/")).status_code == 403
        assert not is_archived()

    def test_an_archived_flow_can_still_be_edited_and_stays_archived(self, opened: EditorPage, editor: Client) -> None:
        archive(editor, opened)
        page = EditorPage(editor, opened.url)
        page.fill("steps-0-", max_retries=1)
        page.save()
        assert FlowVersion.objects.count() == 2
        assert is_archived()

    def test_a_posted_field_does_not_take_it_out(self, opened: EditorPage, editor: Client) -> None:
        archive(editor, opened)
        page = EditorPage(editor, opened.url)
        page.fields["is_archived"] = ""
        page.save()
        assert is_archived()

    def test_loading_a_file_leaves_it_where_it_is(self, opened: EditorPage) -> None:
        Flow.objects.update(is_archived=True)
        load_flow(document=make_flow(title="Tea", description="New.").to_document())
        assert FlowVersion.objects.count() == 2
        assert is_archived()


class TestList:
    @pytest.fixture(autouse=True)
    def flows(self, editor: Client) -> None:
        load_examples()
        load_flow(document=make_flow(title="Old tea").to_document())
        Flow.objects.filter(title="Old tea").update(is_archived=True)

    @pytest.mark.parametrize(
        ("query", "active", "archived"),
        [
            ("", True, False),
            ("?is_archived__exact=0", True, False),
            ("?is_archived__exact=1", False, True),
            ("?is_archived__exact=all", True, True),
            ("?is_archived__exact=nonsense", True, True),
            ("?q=tea", False, False),
            ("?q=tea&is_archived__exact=all", False, True),
        ],
    )
    def test_archived_flows_are_left_out_unless_one_asks_for_them(
        self, editor: Client, query: str, active: bool, archived: bool
    ) -> None:
        titles = {flow.title for flow in editor.get(LIST + query).context["cl"].result_list}
        assert ("Old tea" in titles) == archived
        assert bool(titles - {"Old tea"}) == active

    def test_the_filter_says_what_is_shown(self, editor: Client) -> None:
        (spec,) = editor.get(LIST).context["cl"].filter_specs
        changelist = editor.get(LIST).context["cl"]
        chosen = [(choice["display"], choice["selected"]) for choice in spec.choices(changelist)]
        assert chosen == [("Active", True), ("Archived", False), ("All", False)]


def test_saving_a_page_that_was_opened_before_the_flow_was_archived_says_so(editor: Client, opened: EditorPage) -> None:
    archive(editor, opened)
    opened.fill(title="Green tea")
    (message,) = opened.save()
    assert message == "Saved as version 2. The flow is archived: no new runs can be started."
    assert is_archived()
