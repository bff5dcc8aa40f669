"""Two editors who save the same flow: the second is told, sees the difference, and loses nothing."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test import Client

from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import EditorPage, open_flow

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}]
HEADING = "Not saved: the flow was saved while you were editing it"


@pytest.fixture
def mine(editor: Client) -> EditorPage:
    """The flow's page as ada opened it."""
    return open_flow(editor, make_step(1, audits=AUDITS), make_step(2))


@pytest.fixture
def theirs(mine: EditorPage, colleague: Client) -> EditorPage:
    """The same page as bob opened it, after her."""
    return EditorPage(colleague, mine.url)


def read_numbers() -> list[int]:
    return [version.number for version in FlowVersion.objects.order_by("number")]


def read_latest() -> Any:
    return FlowVersion.objects.latest("number").flow_spec


def be_refused(page: EditorPage) -> str:
    """Save; it must come back as it was typed, with the notice, and nothing stored. Gives the page's words."""
    before, typed = read_numbers(), dict(page.fields)
    assert page.save_in_vain() == {}
    assert HEADING in page.words
    assert page.fields == typed
    assert read_numbers() == before
    return page.words


def post_together(*pages: EditorPage) -> list[int]:
    """The statuses of the answers to pages that are saved at the same moment."""
    answers: list[int] = []
    barrier = Barrier(len(pages))

    def post(page: EditorPage) -> None:
        try:
            barrier.wait(timeout=30)
            answers.append(page.post().status_code)
        finally:
            connection.close()

    threads = [Thread(target=post, args=[page]) for page in pages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class TestTheSecondIsTold:
    def test_who_saved_which_version_what_they_changed_and_what_saving_would_change(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill("steps-0-", system_message="Be brief.")
        theirs.save()
        mine.fill("steps-1-", max_retries=1)
        words = be_refused(mine)
        assert "bob saved version 2 on " in words
        assert "All that you typed is still here." in words
        changed, _, would_change = words.partition("What saving your page would change now")
        assert "Be brief." in changed
        assert "Step 2" in would_change
        assert "3" in would_change
        assert "_overwrite" in mine.buttons
        assert "Save mine as version 3 all the same" in words
        assert "Open version 2 in another tab" in words

    def test_saving_all_the_same_makes_the_next_version_and_theirs_stays(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill("steps-0-", system_message="Be brief.")
        theirs.save()
        mine.fill("steps-1-", max_retries=1)
        mine.fill(note="Fewer retries.")
        be_refused(mine)
        (message,) = mine.save("_overwrite")
        assert message.startswith("Saved as version 3.")
        _, second, third = FlowVersion.objects.order_by("number")
        assert second.flow_spec.steps[0].system_message == "Be brief."
        assert third.flow_spec.steps[0].system_message == ""
        assert third.flow_spec.steps[1].max_retries == 1
        assert third.note == "Fewer retries."

    def test_a_version_that_this_installation_can_not_read_is_told_and_left_alone(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill("steps-0-", system_message="Be brief.")
        theirs.save()
        # Versions don't change, unless a later ToolFlow has worked on the database.
        QuerySet.update(FlowVersion.objects.filter(number=2), spec={"name": "example", "colour": "red"})
        mine.fill("steps-1-", max_retries=1)
        words = be_refused(mine)
        assert words.count("The definition of version 2 can't be read by this version of ToolFlow.") == 2
        (message,) = mine.save("_overwrite")
        assert message.startswith("Saved as version 3.")

    def test_saving_once_more_without_a_decision_is_refused_again(self, mine: EditorPage, theirs: EditorPage) -> None:
        theirs.fill("steps-0-", max_retries=0)
        theirs.save()
        mine.fill("steps-0-", max_retries=2)
        be_refused(mine)
        mine.buttons["_save"] = ""
        be_refused(mine)

    def test_a_third_save_in_between_is_told_before_anything_is_overwritten(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill("steps-0-", max_retries=0)
        theirs.save()
        mine.fill("steps-0-", max_retries=2)
        be_refused(mine)
        theirs.fill("steps-1-", max_retries=0)
        theirs.save()
        response = mine.post("_overwrite")
        assert response.status_code == 200
        assert "the last of 2 versions since you opened the page" in " ".join(response.content.decode().split())
        assert read_numbers() == [1, 2, 3]

    def test_one_who_saved_in_another_window_is_told_so(self, mine: EditorPage, editor: Client) -> None:
        other = EditorPage(editor, mine.url)
        other.fill("steps-0-", max_retries=0)
        other.save()
        mine.fill("steps-0-", max_retries=2)
        assert "You, in another window, saved version 2" in be_refused(mine)

    def test_a_file_that_was_loaded_meanwhile_is_told_too(self, mine: EditorPage) -> None:
        load_flow(document=make_flow(make_step(1, audits=AUDITS), make_step(2), description="New.").to_document())
        mine.fill("steps-0-", max_retries=2)
        assert "Somebody saved version 2" in be_refused(mine)

    def test_loading_a_file_that_brings_nothing_new_disturbs_nobody(self, mine: EditorPage) -> None:
        load_flow(document=make_flow(make_step(1, audits=AUDITS), make_step(2)).to_document())
        mine.fill("steps-0-", max_retries=2)
        assert mine.save()[0].startswith("Saved as version 2.")

    def test_limits_that_somebody_else_set_are_not_undone_in_silence(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill(max_runs_in_flight=5)
        theirs.save()
        mine.fill("steps-0-", max_retries=2)
        words = be_refused(mine)
        assert "bob saved it on " in words
        assert "Runs in flight: 5 → none" in words
        mine.fill(max_runs_in_flight=5)
        mine.save("_overwrite")
        assert Flow.objects.get().max_runs_in_flight == 5

    def test_mistakes_are_listed_beside_the_notice(self, mine: EditorPage, theirs: EditorPage) -> None:
        theirs.fill("steps-0-", system_message="Be brief.")
        theirs.save()
        mine.fill("steps-1-", name="")
        errors = mine.save_in_vain()
        assert list(errors) == ["steps-1-name"]
        assert HEADING in mine.words
        assert "Be brief." in mine.words
        assert "Your page has mistakes, listed below." in mine.words
        assert "_overwrite" not in mine.buttons
        mine.fill("steps-1-", name="Second")
        be_refused(mine)
        mine.save("_overwrite")
        assert read_latest().steps[1].name == "Second"

    def test_a_version_that_was_deleted_meanwhile_does_not_hide_the_conflict(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill("steps-0-", max_retries=0)
        theirs.save()
        FlowVersion.objects.get(number=2).delete()
        mine.fill("steps-0-", max_retries=2)
        assert "bob saved it on" in be_refused(mine)


class TestNoConflict:
    def test_the_same_change_by_both_is_none(self, mine: EditorPage, theirs: EditorPage) -> None:
        for page in (theirs, mine):
            page.fill("steps-0-", max_retries=0)
        theirs.save()
        (message,) = mine.save()
        assert message.startswith("Nothing changed since version 2.")
        assert read_numbers() == [1, 2]

    def test_the_same_new_step_by_both_is_there_once(self, mine: EditorPage, theirs: EditorPage) -> None:
        for page in (theirs, mine):
            page.add_step(name="Newcomer", tool_name="newcomer", compute="{}")
            page.save()
        assert [step.name for step in StepDefinition.objects.all()] == ["Step 1", "Step 2", "Newcomer"]
        assert read_numbers() == [1, 2]

    def test_making_a_version_live_is_none(self, mine: EditorPage, theirs: EditorPage, colleague: Client) -> None:
        mine.fill("steps-0-", max_retries=0)
        mine.save()
        flow = Flow.objects.get()
        colleague.post(f"/admin/flows/flow/{flow.pk}/versions/2/make-live/")
        mine.fill("steps-0-", max_retries=1)
        assert mine.save()[0].startswith("Saved as version 3.")

    def test_archiving_is_none(self, mine: EditorPage, colleague: Client) -> None:
        colleague.post(mine.url.replace("/change/", "/archive/"))
        mine.fill("steps-0-", max_retries=1)
        assert mine.save()[0].startswith("Saved as version 2.")
        assert Flow.objects.get().is_archived

    def test_a_save_of_somebody_else_that_changed_nothing_is_none(self, mine: EditorPage, theirs: EditorPage) -> None:
        theirs.save()
        mine.fill("steps-0-", max_retries=1)
        assert mine.save()[0].startswith("Saved as version 2.")


class TestStepsThatCameOrWent:
    def test_a_step_that_they_added_stays_in_their_version_when_mine_is_saved(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.add_step(name="Newcomer", compute="{}", tool_name="")
        theirs.save()
        mine.fill("steps-0-", max_retries=0)
        words = be_refused(mine)
        assert "Newcomer" in words
        mine.save("_overwrite")
        assert [step.name for step in StepDefinition.objects.all()] == ["Step 1", "Step 2"]
        assert [step.name for step in FlowVersion.objects.get(number=2).flow_spec.steps][-1] == "Newcomer"

    def test_a_step_that_they_deleted_is_a_new_one_with_all_that_was_typed(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.fill("steps-0-", DELETE="on")
        theirs.save()
        mine.fill("steps-0-", name="Still here")
        mine.fill("steps-0-audits-0-", name="Mine")
        assert mine.save_in_vain() == {}
        assert HEADING in mine.words
        assert mine.fields["steps-0-name"] == "Still here"
        mine.save("_overwrite")
        assert [step.name for step in StepDefinition.objects.all()] == ["Still here", "Step 2"]
        assert AuditRule.objects.get().name == "Mine"
        assert [step.name for step in read_latest().steps] == ["Still here", "Step 2"]

    def test_a_step_that_both_deleted_is_gone(self, mine: EditorPage, theirs: EditorPage) -> None:
        for page in (theirs, mine):
            page.fill("steps-0-", DELETE="on")
        theirs.save()
        assert mine.save()[0].startswith("Nothing changed since version 2")
        assert [step.name for step in StepDefinition.objects.all()] == ["Step 2"]

    def test_an_audit_that_they_deleted_comes_back(self, mine: EditorPage, theirs: EditorPage) -> None:
        theirs.fill("steps-0-audits-0-", DELETE="on")
        theirs.save()
        assert mine.save_in_vain() == {}
        mine.save("_overwrite")
        assert AuditRule.objects.get().step.name == "Step 1"

    def test_an_audit_that_they_moved_out_of_a_step_that_they_deleted_goes_where_mine_has_it(
        self, mine: EditorPage
    ) -> None:
        AuditRule.objects.update(step=StepDefinition.objects.get(name="Step 2"))
        StepDefinition.objects.get(name="Step 1").delete()
        Flow.objects.update(revision=9)
        mine.fill("steps-0-", max_retries=0)
        assert mine.save_in_vain() == {}
        mine.save("_overwrite")
        assert AuditRule.objects.get().step.name == "Step 1"

    def test_a_flow_that_they_deleted_comes_back_as_a_new_one(self, mine: EditorPage) -> None:
        Flow.objects.all().delete()
        mine.fill("steps-0-", name="Still here")
        assert mine.save_in_vain() == {}
        assert "Somebody deleted this flow meanwhile." in mine.words
        assert not Flow.objects.exists()
        mine.url = "/admin/flows/flow/add/"
        assert mine.save() == ["Saved as version 1, which is live: new runs use it."]
        assert [step.name for step in StepDefinition.objects.all()] == ["Still here", "Step 2"]
        assert AuditRule.objects.get().name == "One"


class TestByHand:
    @pytest.mark.parametrize("text", ["", "abc", "-1", "1.5", "\0", "²"])
    def test_a_page_that_does_not_say_what_it_was_made_of_is_refused_in_one_sentence(
        self, mine: EditorPage, text: str
    ) -> None:
        mine.fields["revision"] = text
        mine.fill("steps-0-", max_retries=0)
        mine.save_in_vain()
        assert mine.words.count("The page does not say which state of the flow it was made of.") == 1
        assert "one thing must be mended" in mine.words
        assert read_numbers() == [1]

    def test_a_page_without_the_field_is_refused(self, mine: EditorPage) -> None:
        del mine.fields["revision"], mine.fields["base_version"]
        mine.fill("steps-0-", max_retries=0)
        mine.save_in_vain()
        assert mine.words.count("The page does not say which state of the flow it was made of.") == 1
        assert read_numbers() == [1]

    @pytest.mark.parametrize("text", ["", "77", "9" * 18, "9" * 30])
    def test_a_base_that_there_is_not_still_tells_who_saved(
        self, mine: EditorPage, theirs: EditorPage, text: str
    ) -> None:
        theirs.fill("steps-0-", max_retries=0)
        theirs.save()
        mine.fields["base_version"] = text
        mine.fill("steps-0-", max_retries=2)
        mine.save_in_vain()
        assert "bob saved" in mine.words
        assert read_numbers() == [1, 2]

    def test_overwriting_names_the_state_that_it_overwrites(self, mine: EditorPage, theirs: EditorPage) -> None:
        theirs.fill("steps-0-", max_retries=0)
        theirs.save()
        mine.fill("steps-0-", max_retries=2)
        for text in ("", "1", "99", "abc", "\0"):
            mine.buttons["_overwrite"] = text
            assert mine.post("_overwrite").status_code == 200
        assert read_numbers() == [1, 2]

    def test_a_page_that_lacks_a_step_is_refused(self, mine: EditorPage) -> None:
        mine.fields["steps-TOTAL_FORMS"] = "1"
        mine.save_in_vain()
        assert "The page arrived without “Step 2”." in mine.words
        assert StepDefinition.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_who_save_at_the_same_moment_one_is_told_about_the_other(
    editor: Client, mine: EditorPage, theirs: EditorPage
) -> None:
    mine.fill("steps-0-", max_retries=1)
    theirs.fill("steps-0-", max_retries=2)
    assert sorted(post_together(mine, theirs)) == [200, 302]
    assert read_numbers() == [1, 2]
    assert Flow.objects.get().revision == 2


@pytest.mark.django_db(transaction=True)
def test_two_who_add_a_flow_of_one_name_at_the_same_moment_get_one_flow_and_one_error(
    editor: Client, colleague: Client
) -> None:
    pages = [EditorPage(client) for client in (editor, colleague)]
    for page in pages:
        page.fill(title="Tea", name="tea")
        page.add_step(name="Brew", compute="{}", tool_name="")
    assert sorted(post_together(*pages)) == [200, 302]
    assert Flow.objects.count() == 1


def test_a_save_counts_only_if_it_changes_something(mine: EditorPage) -> None:
    def read_revision() -> int:
        return Flow.objects.get().revision

    assert read_revision() == 1
    mine.save()
    assert read_revision() == 1
    mine.fill("steps-0-", max_retries=0)
    mine.save()
    assert read_revision() == 2
    mine.fill(max_runs_in_flight=3)
    mine.save()
    assert read_revision() == 3
