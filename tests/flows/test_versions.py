"""The versions of a flow: listed with their runs, compared, one live, an earlier one restored; what must be kept."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.http import HttpResponse
from django.test import Client

from flows.admin.version_admin import RunCount
from flows.admin.version_pages import PAGE_SIZE
from flows.engine.plugins import registry
from flows.examples import load_examples
from flows.models import Flow, FlowVersion
from flows.publishing import restore_version
from tests.flows.editor_page import EditorPage
from tests.flows.loading import load_flow
from tests.flows.versioned import read_words, store_three_versions, store_version
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def flow(db: None) -> Flow:
    """A flow whose step may be tried again 3, 1 and 2 times; the first version is live."""
    return store_three_versions()


def address(flow: Flow, rest: str = "") -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/{rest}"


def get_version(flow: Flow, number: int) -> FlowVersion:
    return flow.versions.get(number=number)


def break_version(flow: Flow, number: int) -> None:
    """Store one that this installation can't read."""
    FlowVersion.objects.create(flow=flow, number=number, spec={"name": "example", "colour": "red"}, digest="x" * 64)


class TestLive:
    def test_making_one_live_asks_first_and_is_logged(self, flow: Flow, editor: Client) -> None:
        url = address(flow, "2/make-live/")
        assert "They will use version 2" in read_words(editor.get(url))
        for number in (2, 1):
            done = editor.post(address(flow, f"{number}/make-live/"), follow=True)
            flow.refresh_from_db()
            assert flow.live_version == get_version(flow, number)
            assert f"Version {number} is live" in str(*done.context["messages"])
            assert LogEntry.objects.latest("pk").change_message == f"Made version {number} live."
        for number in (4, 99999999999999999999):
            assert editor.post(address(flow, f"{number}/make-live/")).status_code == 404

    def test_one_shows_its_definition_and_its_difference_and_cannot_be_changed(
        self, flow: Flow, editor: Client
    ) -> None:
        url = f"/admin/flows/flowversion/{get_version(flow, 2).pk}/change/"
        content = editor.get(url).content.decode()
        assert "&quot;max_retries&quot;: 1" in content and "<textarea" not in content
        for rest in ("", "compare/?from=live&amp;to=2", "2/restore/"):
            assert f'href="{address(flow, rest)}"' in content
        assert editor.post(url, {"number": 7}).status_code == 403
        assert editor.get("/admin/flows/flowversion/add/").status_code == 403


class TestDeleting:
    @pytest.mark.parametrize(
        ("number", "sentence"), [(1, "is live. Make another version live first."), (2, "has runs"), (3, "")]
    )
    def test_only_a_version_that_is_not_live_and_never_ran_can_be_deleted(
        self, flow: Flow, editor: Client, number: int, sentence: str
    ) -> None:
        make_run(get_version(flow, 2))
        url = f"/admin/flows/flowversion/{get_version(flow, number).pk}/delete/"
        answers = [editor.get(url), editor.post(url, {"post": "yes"})]
        assert flow.versions.filter(number=number).exists() is bool(sentence)
        for answer in answers if sentence else ():
            assert (answer.status_code, sentence in read_words(answer)) == (200, True)

    def test_a_run_that_starts_while_a_flow_is_being_deleted_wins(
        self, flow: Flow, editor: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_run(get_version(flow, 1))
        # The check before came too early to see the run.
        monkeypatch.setattr("flows.admin.flow_admin.is_referred_to", lambda row: False)
        monkeypatch.setattr("django.contrib.admin.options.get_deleted_objects", lambda *args: ([], {}, set(), []))
        editor.post(f"/admin/flows/flow/{flow.pk}/delete/", {"post": "yes"}, follow=True)
        assert Flow.objects.exists()


class TestList:
    def test_it_says_of_each_version_what_it_changed_and_marks_the_last_two(self, flow: Flow, editor: Client) -> None:
        response = editor.get(address(flow))
        assert [(row.version.number, row.summary, row.is_live) for row in response.context["rows"]] == [
            (3, "“Step 1”: max_retries 1 → 2", False),
            (2, "“Step 1”: max_retries 3 → 1", False),
            (1, "The first version", True),
        ]
        content = response.content.decode()
        assert 'name="from" value="2" checked' in content and 'name="to" value="3" checked' in content
        assert "Fewer tries" in read_words(response)

    def test_what_can_no_longer_be_read_is_said_and_hides_nothing_else(self, flow: Flow, editor: Client) -> None:
        break_version(flow, 4)
        rows = editor.get(address(flow)).context["rows"]
        assert rows[0].summary == "The definition of version 4 can't be read by this version of ToolFlow."
        assert rows[1].summary == "“Step 1”: max_retries 1 → 2"
        assert "version 4 can't be read" in read_words(editor.get(address(flow, "compare/?from=1&to=4")))

    def test_queries_do_not_grow_with_versions(self, editor: Client, django_assert_num_queries: Any) -> None:
        for count in (2, PAGE_SIZE * 2):
            for retries in range(count):
                version = store_version(max_retries=retries)
            make_run(version)
            # Session, user, flow, number of versions, latest number, versions, runs.
            with django_assert_num_queries(7):
                editor.get(address(version.flow))
            # Session, user, flow, numbers, both versions, their runs.
            with django_assert_num_queries(6):
                editor.get(address(version.flow, "compare/"))


class TestDifference:
    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("?from=1&to=3", "max_retries 3 → 2"),
            ("?from=3&to=1", "max_retries 2 → 3"),
            ("", "Version 2 → version 3"),
            ("?from=live&to=2", "Version 1 → version 2"),
            ("?from=2&to=2", "No difference."),
        ],
    )
    def test_two_versions_are_compared(self, flow: Flow, editor: Client, query: str, words: str) -> None:
        assert words in read_words(editor.get(address(flow, f"compare/{query}")))

    def test_what_people_wrote_is_shown_as_text(self, editor: Client) -> None:
        store_version(system_message="Read `it`.")
        evil = "<script>alert(1)</script>\n" * 9
        flow = store_version(system_message=evil, name="<b>Bold</b>", tool_name="tool_1").flow
        content = editor.get(address(flow, "compare/")).content.decode()
        assert "<script>alert" not in content and "<b>Bold" not in content
        assert "&lt;b&gt;Bold&lt;/b&gt;" in content

    @pytest.mark.parametrize(
        "query", ["from=1&to=9", "from=x&to=1", "from=1", f"from=1&to={'9' * 26}", "from=1&to=%00"]
    )
    def test_a_version_that_there_is_not_is_a_sentence_with_a_way_back(
        self, flow: Flow, editor: Client, query: str
    ) -> None:
        other = Flow.objects.create(name="other", title="Other")
        break_version(other, 9)
        response = editor.get(address(flow, f"compare/?{query}"))
        assert response.status_code == 404
        assert f'href="{address(flow)}"' in response.content.decode()


class TestRestoring:
    @staticmethod
    def restore(client: Client, flow: Flow, number: int, **fields: Any) -> HttpResponse:
        """What comes of a click on the page's button."""
        latest = flow.versions.latest("number").number
        return client.post(address(flow, f"{number}/restore/"), {"latest": latest, **fields}, follow=True)

    def test_a_schema_that_its_type_would_make_otherwise_now_stays_as_it_was_frozen(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load_examples()
        first = Flow.objects.get(name="colour-theme").versions.get()
        load_flow(document={**first.flow_spec.to_document(), "description": "Another one"})
        monkeypatch.setattr("flows.publishing.schema_of_type", lambda model: {"type": "object"})
        assert restore_version(version=first).digest == first.digest

    def test_the_button_restores_the_version_and_says_so(self, flow: Flow, editor: Client) -> None:
        Flow.objects.filter(pk=flow.pk).update(name="renamed", is_archived=True, max_runs_in_flight=7)
        response = self.restore(editor, flow, 2, note="  Better   after all ")
        (message,) = map(str, response.context["messages"])
        assert f'href="{address(flow, "4/make-live/")}"' in message
        restored = get_version(flow, 4)
        assert (restored.note, str(restored.created_by)) == ("Restores version 2. Better after all", "ada")
        assert restored.spec == {**get_version(flow, 2).spec, "name": "renamed"}
        flow.refresh_from_db()
        assert (flow.live_version, flow.name, flow.is_archived, flow.max_runs_in_flight) == (
            *(get_version(flow, 1), "renamed", True, 7),
        )
        assert LogEntry.objects.latest("pk").change_message == "Restored version 2 as version 4."
        page = EditorPage(editor, f"/admin/flows/flow/{flow.pk}/change/")
        assert page.steps[0]["max_retries"] == 1
        self.restore(editor, flow, 1, _make_live="")
        flow.refresh_from_db()
        assert flow.live_version == get_version(flow, 5)
        for response in (editor.get(address(flow, "5/restore/")), self.restore(editor, flow, 5)):
            assert "Version 5 is the latest already" in read_words(response)
        assert flow.versions.count() == 5

    def test_what_keeps_a_version_from_running_is_listed_and_nothing_changes(
        self, flow: Flow, editor: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load_examples()
        theme = Flow.objects.get(name="colour-theme")
        load_flow(document={**get_version(theme, 1).flow_spec.to_document(), "description": "Another one"})
        monkeypatch.delitem(registry.output_types, "colour_suite")
        break_version(theme, 0)
        for number, problem in ((1, "Step 3 “Full suite”, output type: "), (0, "Unknown field “colour”.")):
            for response in (editor.get(address(theme, f"{number}/restore/")), self.restore(editor, theme, number)):
                assert problem in read_words(response)
                assert f"Restore version {number}</button>" not in response.content.decode()
        assert theme.versions.count() == 3


def end_runs(version: FlowVersion, **counts: int) -> None:
    """So many runs with each status."""
    for status, count in counts.items():
        for _ in range(count):
            make_run(version, status=status, ended_at=Now())


@pytest.mark.parametrize(
    ("ended", "succeeded", "rate"),
    [(0, 0, "—"), (3, 3, "100 %"), (3, 0, "0 %"), (3, 2, "67 %"), (1_000, 999, "over 99 %"), (1_000, 1, "under 1 %")],
)
def test_a_pass_rate_says_all_or_none_only_where_it_is_so(ended: int, succeeded: int, rate: str) -> None:
    assert RunCount(total=ended, ended=ended, succeeded=succeeded).pass_rate == rate


def test_cancelled_runs_and_those_under_way_have_not_ended(admin_client: Client) -> None:
    first, second = make_version(), make_version()
    end_runs(first, succeeded=1, failed=2, errored=1, cancelled=2)
    make_run(first)
    versions = f"/admin/flows/flow/{first.flow_id}/versions/"
    rows = admin_client.get(versions).context["rows"]
    counts = [(row.runs.total, row.runs.ended, row.runs.succeeded) for row in rows]
    assert counts == [(0, 0, 0), (7, 4, 1)]
    for page in (f"{versions}compare/", f"/admin/flows/flowversion/{first.pk}/change/"):
        assert "25 % (1 of 4" in admin_client.get(page).content.decode()
    assert second.flow_id == first.flow_id


def test_who_may_not_see_runs_is_not_told_how_many_there_are(client: Client) -> None:
    version = make_version()
    end_runs(version, succeeded=3)
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_flow", "view_flowversion"]))
    client.force_login(user)
    pages: dict[str, Any] = {
        "Pass rate</dt>": f"/admin/flows/flow/{version.flow_id}/versions/",
        "column-run_count": "/admin/flows/flowversion/",
        "field-run_count": f"/admin/flows/flowversion/{version.pk}/change/",
    }

    def list_telling() -> list[bool]:
        return [mark in client.get(page).content.decode() for mark, page in pages.items()]

    assert list_telling() == [False] * 3
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    assert list_telling() == [True] * 3
