"""The flow editor saves what can run and nothing else, says what it did, and tells all that is wrong at once."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.models import Flow, FlowDraft, FlowVersion
from runs.models import AuditEntry
from tests.engine.builders import TEXT_SCHEMA, make_step
from tests.flows.editor_page import ADD_URL, CHECK_URL, EditorPage, fill_new_flow, open_flow, read_rows
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}]
UNCHANGED = ["Nothing changed since version 1, which is live: new runs use it."]


def read_log() -> list[str]:
    """What the log of the admin says, from the first entry on."""
    return list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))


def read_numbers() -> list[int]:
    return [version.number for version in FlowVersion.objects.order_by("number")]


class TestSaving:
    def test_a_new_flow_is_saved_with_its_note_and_its_first_version_is_live(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.note = "  A start.  "
        assert page.save() == ["Saved as version 1, which is live: new runs use it."]
        version = Flow.objects.get(name="invoice-extraction").live_version
        assert version is not None
        assert (version.note, str(version.created_by), read_log()) == ("A start.", "ada", ["Saved as version 1."])
        assert version.flow_spec.steps[0].audits[0].rule == "output.text != ''"

    def test_a_change_makes_the_next_version_which_is_live_if_one_says_so(self, editor: Client) -> None:
        page = open_flow(editor)
        assert (page.save(), read_log()) == (UNCHANGED, [])
        page.steps[0]["max_retries"] = 1
        (message,) = page.save()
        assert message.startswith("Saved as version 2. New runs still use version 1.")
        assert "/versions/2/make-live/" in message
        assert page.save("_make_live") == ["Nothing changed since version 2, which is live: new runs use it."]
        page.steps[0]["max_retries"] = 2
        assert page.save("_make_live") == ["Saved as version 3, which is live: new runs use it."]
        assert read_log() == ["Saved as version 2.", "Made version 2 live.", "Saved as version 3. Made version 3 live."]
        audited = AuditEntry.objects.filter(action__startswith="flow_").order_by("pk")
        assert Counter(entry.action for entry in audited) == {"flow_added": 1, "flow_published": 3, "flow_made_live": 3}

    def test_without_scripts_the_flow_is_a_text_which_is_saved_or_comes_back_with_lines(self, editor: Client) -> None:
        audits = [{"name": "Lines", "rule": "output.text != ''\n  && true"}]
        page = open_flow(editor, make_step(system_message="Read it.\n\nThen write\n  a summary.", audits=audits))
        assert page.post_form().status_code == 302
        assert read_numbers() == [1], "unchanged"
        typed = page.fields["text"].replace("- name: Step 1", "- name: Step one").replace("true\n", "tru\n")
        page.fields["note"] = "Renamed."
        page.read(page.post_form(text=typed), status=422)
        assert (page.fields["text"], page.fields["note"], read_numbers()) == (typed, "Renamed.", [1])
        assert f"Line {typed[: typed.index('rule:')].count(chr(10)) + 1}, column" in page.words
        assert "Unknown variable “tru”" in page.words
        assert page.post_form(text=typed.replace("tru\n", "true\n")).status_code == 302
        assert FlowVersion.objects.get(number=2).flow_spec.steps[0].name == "Step one"

    def test_warnings_and_a_note_that_was_not_needed_are_reported_after_saving(self, editor: Client) -> None:
        page = open_flow(editor, make_step(1), make_step(2, include_results=[0]))
        page.note = "<b>Nothing</b> much."
        _, lost, warning = page.save()
        assert "<b>Nothing</b> much.”" in lost and "includes the results of step 0" in warning
        page.steps[1]["max_retries"], page.note = 1, "x" * 501
        assert "at most 500" in page.be_refused()["/note"]
        page.note = "<script>alert(1)</script>"
        page.save()
        assert FlowVersion.objects.latest("number").note == "<script>alert(1)</script>"


class TestProblems:
    def test_all_are_reported_at_once_at_their_pointers_and_places_and_nothing_is_stored(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        audit = {"name": "Not empty", "rule": "outputs.text != ''", "message_template": "{item.number", "colour": 1}
        page.steps[0] |= {"tool_name": "extract invoice", "max_retries": -1, "audits": [audit, 7]}
        loose = {**TEXT_SCHEMA, "required": []}
        page.steps.append({"name": "Extract", "tool_name": "two", "output_schema": loose, "include_results": [1, 5]})
        page.document |= {"input_schema": '{"type": "object",\n "properties": {,}}', "token_budget": "many"}
        reported = page.check()
        found = {one["path"]: one for one in reported["problems"]}
        assert found.keys() == page.be_refused().keys() == {
            "/input_schema", "/token_budget", "/steps/0/tool_name", "/steps/0/max_retries", "/steps/0/audits/0/rule",
            "/steps/0/audits/0/message_template", "/steps/0/audits/0/colour", "/steps/0/audits/1", "/steps/0/name",
            "/steps/1/name", "/steps/1/output_schema/required", "/steps/1/include_results/1",
        }  # fmt: skip
        assert found["/input_schema"]["message"].startswith("Line 2, column 17: a key in double quotes")
        assert found["/steps/0/audits/0/rule"]["place"] == "Step 1 “Extract”, audit 1 “Not empty”, rule"
        assert "Unknown variable “outputs”" in found["/steps/0/audits/0/rule"]["message"]
        assert (reported["more"], Flow.objects.count()) == (0, 0)

    @pytest.mark.parametrize(
        ("changes", "path", "words"),
        [
            ({"input_schema": {"type": "array"}}, "/input_schema/type", "object"),
            ({"input_schema": '{"a": 1'}, "/input_schema", "Line 1, column 8: a comma is missing"),
            ({"input_schema": '{"a": 1, "a": 2}'}, "/input_schema", "twice"),
            ({"steps": [make_step(output_type="ghost").model_dump(mode="json")]}, "/steps/0/output_type", "registered"),
            (
                {"steps": [make_step(output_type="colour_suite").model_dump(mode="json")]},
                "/steps/0/output_schema",
                "made from the type",
            ),
        ],
    )
    def test_what_cannot_run_is_refused_at_its_field_in_either_form(
        self, editor: Client, changes: dict[str, Any], path: str, words: str
    ) -> None:
        page = fill_new_flow(editor)
        page.document |= changes
        assert words in page.be_refused()[path]
        if not isinstance(changes.get("input_schema"), str):
            before = read_rows()
            answer = page.post(document="", text=json.dumps(page.document))
            assert (answer.status_code, read_rows()) == (422, before)
            assert path in [one["path"] for one in answer.json()["problems"]]


class TestGone:
    def test_a_flow_that_was_deleted_meanwhile_comes_back_as_a_new_one(self, editor: Client) -> None:
        page, new = open_flow(editor), fill_new_flow(editor)
        new.check()
        Flow.objects.all().delete()
        page.steps[0]["name"] = "Still here"
        answer = page.client.post(CHECK_URL, {"flow": page.data["flow"], "document": {}}, "application/json")
        assert (answer.status_code, "was deleted" in answer.json()["error"]) == (400, True)
        assert "was deleted" in page.be_refused()[""]
        assert page.post().json()["is_gone"]
        assert page.save("_new") == ["Saved as version 1, which is live: new runs use it."]
        assert FlowVersion.objects.get().flow_spec.steps[0].name == "Still here"
        assert FlowDraft.objects.get().document == new.document, "another flow"


class TestPermissions:
    """Beside ``tests/site/test_permissions.py``, which goes through all addresses."""

    @pytest.fixture
    def mine(self, editor: Client) -> EditorPage:
        """A page with a change, not saved."""
        page = open_flow(editor, make_step(system_message="Be brief.", audits=AUDITS))
        page.steps[0]["max_retries"] = 0
        return page

    @staticmethod
    def sign_in(*actions: str) -> Client:
        """A browser of a user of the staff who has these permissions for flows alone."""
        user = User.objects.create_user("vera", password="secret", is_staff=True)
        user.user_permissions.add(*Permission.objects.filter(codename__in=[f"{action}_flow" for action in actions]))
        client = Client()
        client.force_login(user)
        return client

    def test_who_may_only_see_flows_reads_them_and_saves_nothing(self, mine: EditorPage) -> None:
        mine.check()
        mine.client = self.sign_in("view")
        before = read_rows()
        seen = EditorPage(mine.client, mine.url)
        assert "system_message: Be brief." in seen.words
        assert (seen.data["may_change"], seen.buttons.keys() & {"_save", "_make_live"}) == (False, set())
        assert "text" not in seen.fields and "/archive/" not in mine.client.get(mine.url).content.decode()
        question = {"flow": None, "document": {}, "base_version": 0}
        assert mine.client.post(CHECK_URL, question, content_type="application/json").status_code == 403
        for url in (mine.url, ADD_URL):
            mine.url = url
            assert {mine.post().status_code, mine.post("_overwrite", "1").status_code} == {403}
        assert read_rows() == before

    @pytest.mark.parametrize(
        ("actions", "saves", "adds"),
        [(("change",), True, False), (("add", "view"), False, False), (("add", "change"), True, True)],
    )
    def test_to_change_and_to_add_are_permissions_of_their_own(
        self, mine: EditorPage, actions: tuple[str, ...], saves: bool, adds: bool
    ) -> None:
        mine.client = self.sign_in(*actions)
        assert (mine.post().status_code == 200) is saves
        assert (mine.client.get(ADD_URL).status_code == 200) is adds
        if adds:
            fill_new_flow(mine.client).save()
        assert Flow.objects.count() == (2 if adds else 1)
        assert (mine.client.post(ADD_URL, {}).status_code == 403) is not adds


def test_markup_that_was_typed_is_shown_as_text_and_pages_hold_nothing_inline(editor: Client) -> None:
    evil = "</script></textarea><script>alert(1)</script>"
    page = open_flow(editor, make_step(name="Step 1", description=evil), title=evil)
    page.steps[0]["name"] = evil
    page.check()
    refused = page.post_form(text=page.fields["text"].replace("name: example", f"name: '{evil}'"))
    for content in (editor.get(page.url).content, refused.content):
        assert (b"<script>alert" in content, InlineFinder(content.decode()).found) == (False, [])
    for url in (ADD_URL, "/admin/flows/flow/", "/admin/flows/flowversion/"):
        content = editor.get(url).content.decode()
        assert (InlineFinder(content).found, "javascript:" in content) == ([], False)


def test_a_flow_with_drafts_can_be_deleted(editor: Client, colleague: Client) -> None:
    page = open_flow(editor)
    theirs = EditorPage(colleague, page.url)
    theirs.document["title"] = "Changed"
    theirs.check()
    assert editor.post(page.url.replace("/change/", "/delete/"), {"post": "yes"}).status_code == 302
    assert (Flow.objects.count(), FlowDraft.objects.count()) == (0, 0)
