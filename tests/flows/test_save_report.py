"""What saving tells, what it logs, and the note about the change."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from flows.models import Flow, FlowVersion
from tests.engine.builders import make_step
from tests.flows.editor_page import EditorPage, fill_new_flow, open_flow

pytestmark = pytest.mark.django_db


def read_log() -> list[str]:
    """What the log of the admin says, from the first entry on."""
    return list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))


class TestNote:
    def test_it_goes_with_the_version_that_the_save_makes(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(note="  A start.  ")
        page.save()
        assert FlowVersion.objects.get().note == "A start."
        assert page.fields["note"] == ""
        assert "A start." in page.words

    def test_a_version_can_do_without(self, editor: Client) -> None:
        fill_new_flow(editor).save()
        assert FlowVersion.objects.get().note == ""

    def test_it_is_kept_on_the_page_when_saving_fails(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill(note="Shorter.")
        page.fill("steps-0-", name="")
        page.save_in_vain()
        assert page.fields["note"] == "Shorter."
        page.fill("steps-0-", name="Brief")
        page.save()
        assert FlowVersion.objects.latest("number").note == "Shorter."

    @pytest.mark.parametrize("fields", [{}, {"max_runs_in_flight": 5}])
    def test_where_no_version_is_made_one_is_told_that_it_was_not_kept(
        self, editor: Client, fields: dict[str, int]
    ) -> None:
        page = open_flow(editor)
        page.fill(note="Nothing much.", **fields)
        _, warning = page.save()
        assert warning.startswith("Your note “Nothing much.” was not kept")
        assert FlowVersion.objects.get().note == ""

    @pytest.mark.parametrize(("length", "is_taken"), [(500, True), (501, False)])
    def test_it_has_at_most_500_characters(self, editor: Client, length: int, is_taken: bool) -> None:
        page = fill_new_flow(editor)
        page.fill(note="x" * length)
        if is_taken:
            page.save()
        else:
            assert "at most 500 characters" in page.save_in_vain()["note"][0]
        assert Flow.objects.exists() == is_taken

    def test_markup_in_it_is_text(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill(note="<script>alert(1)</script>")
        page.save()
        assert "<script>alert(1)</script>" in page.words
        assert "<script>alert" not in editor.get(page.url).content.decode()


class TestLog:
    def test_a_version_is_logged_when_one_was_made(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.save()
        page.fill("steps-0-", max_retries=1)
        page.save("_make_live")
        assert read_log() == ["Saved as version 1.", "Saved as version 2. Made version 2 live."]

    def test_limits_are_logged_with_old_and_new_values(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill(max_runs_in_flight=5, total_token_budget=1_000_000, total_cost_budget="25.5", budget_period="day")
        page.save()
        page.fill(max_runs_in_flight="")
        page.fill("steps-0-", max_retries=1)
        page.save()
        limits = (
            "Changed limits: Runs in flight none → 5, Budget of all runs (tokens) none → 1,000,000, "
            "Budget of all runs (USD) none → 25.50, Budget of all runs, for each Month → Day."
        )
        assert read_log() == [limits, "Saved as version 2. Changed limits: Runs in flight 5 → none."]

    def test_a_save_that_changed_nothing_leaves_no_trace(self, editor: Client) -> None:
        page = open_flow(editor)
        before = Flow.objects.values().get()
        page.save()
        assert read_log() == []
        assert Flow.objects.values().get() == before

    def test_every_change_is_told_when_the_flow_was_saved(self, editor: Client) -> None:
        page = open_flow(editor)
        for prefix, change in (("", {"max_runs_in_flight": 3}), ("steps-0-", {"max_retries": 1})):
            opened = timezone.now()
            page.fill(prefix, **change)
            page.save()
            assert Flow.objects.get().updated_at > opened

    def test_choosing_the_live_version_is_logged(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill("steps-0-", max_retries=1)
        page.save()
        page.save("_make_live")
        for number in (2, 1):
            editor.post(page.url.replace("/change/", f"/versions/{number}/make-live/"))
        assert read_log() == ["Saved as version 2.", "Made version 2 live.", "Made version 1 live."]

    def test_deleting_says_so_in_our_words(self, editor: Client) -> None:
        page = open_flow(editor, title="Tea")
        answer = editor.post(page.url.replace("/change/", "/delete/"), {"post": "yes"}, follow=True)
        assert [str(message) for message in answer.context["messages"]] == ["“Tea” is deleted."]
        assert read_log() == ["Deleted with all its versions."]


class TestDoubts:
    def test_a_step_that_can_no_longer_be_read_is_told_after_saving(self, editor: Client) -> None:
        audit = {"name": "Same dish", "rule": "output.text == steps[1].output.text"}
        page = open_flow(editor, make_step(1), make_step(2, name="Menu", audits=[audit]))
        assert page.save() == ["Nothing changed since version 1, which is live: new runs use it."]
        page.fill("steps-0-", DELETE="on")
        _, warning = page.save()
        assert warning == (
            "Step 1 “Menu”, audit “Same dish”, rule: steps[1] can’t be read here: "
            "only the input, steps[0], comes before this step."
        )
        assert FlowVersion.objects.count() == 2

    def test_a_property_that_a_moved_step_lacks_is_told_after_saving(self, editor: Client) -> None:
        page = open_flow(editor, make_step(1), make_step(2, input_expression="{'a': previous.txt}"))
        page.fill("steps-1-", input_expression="{'a': previous.dish}")
        _, warning = page.save()
        assert warning == (
            "Step 2 “Step 2”, input expression: The schema of “previous” has no property “dish”. It has text."
        )

    def test_of_many_the_first_are_told_and_the_others_counted(self, editor: Client) -> None:
        audits = [{"name": f"Audit {number}", "rule": "output.dish == ''"} for number in range(12)]
        page = open_flow(editor, make_step(1, audits=audits))
        page.fill("steps-0-", max_retries=1)
        _, *warnings = page.save()
        assert len(warnings) == 11
        assert warnings[-1] == (
            "2 more paths lead nowhere in expressions of this flow; each field says so once you are in it."
        )


def test_rows_that_did_not_change_are_not_written_again(editor: Client, django_assert_max_num_queries: object) -> None:
    audits = [{"name": f"Audit {number}", "rule": "true"} for number in range(10)]
    page = open_flow(editor, *(make_step(number, audits=audits) for number in range(1, 21)))
    page.fill("steps-7-", max_retries=0)
    with django_assert_max_num_queries(40):  # type: ignore[operator]  # a fixture
        response = page.post()
    assert response.status_code == 302
    assert FlowVersion.objects.latest("number").flow_spec.steps[7].max_retries == 0


def test_an_account_that_was_deleted_leaves_its_versions_and_notes(editor: Client) -> None:
    page = fill_new_flow(editor)
    page.fill(note="A start.")
    page.save()
    User.objects.all().delete()
    version = FlowVersion.objects.get()
    assert (version.note, version.created_by) == ("A start.", None)


def test_a_page_posted_twice_by_a_double_click_is_saved_once(editor: Client) -> None:
    page = open_flow(editor)
    page.fill("steps-0-", max_retries=1)
    assert [page.post().status_code, page.post().status_code] == [302, 302]
    assert [version.number for version in FlowVersion.objects.all()] == [2, 1]
    assert EditorPage(editor, page.url).fields["steps-0-max_retries"] == "1"
