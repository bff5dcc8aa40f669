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
STEPS = (make_step(1, audits=AUDITS), make_step(2))
HEADING = "Not saved: the flow was saved while you were editing it"


@pytest.fixture
def mine(editor: Client) -> EditorPage:
    """The flow's page as ada opened it."""
    return open_flow(editor, *STEPS)


@pytest.fixture
def theirs(mine: EditorPage, colleague: Client) -> EditorPage:
    """The same page as bob opened it, after her."""
    return EditorPage(colleague, mine.url)


def save(page: EditorPage, prefix: str = "steps-0-", **fields: Any) -> None:
    page.fill(prefix, **fields)
    page.save()


def read_numbers() -> list[int]:
    return [version.number for version in FlowVersion.objects.order_by("number")]


def read_names() -> list[str]:
    return [step.name for step in StepDefinition.objects.all()]


def be_refused(page: EditorPage) -> str:
    """Save; it must come back as it was typed, with the notice, and nothing stored. Gives the page's words."""
    before, typed = read_numbers(), dict(page.fields)
    assert page.save_in_vain() == {}
    assert HEADING in page.words
    assert (page.fields, read_numbers()) == (typed, before)
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
    return sorted(answers)


class TestTheSecondIsTold:
    def test_who_saved_what_and_what_saving_would_change_and_may_save_all_the_same(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        save(theirs, system_message="Be brief.")
        mine.fill("steps-1-", name="")
        assert list(mine.save_in_vain()) == ["steps-1-name"], "mistakes are listed beside the notice"
        assert HEADING in mine.words and "_overwrite" not in mine.buttons
        mine.fill("steps-1-", name="Step 2", max_retries=1)
        mine.fill(note="Fewer retries.")
        words = be_refused(mine)
        assert "bob saved version 2 on " in words
        changed, _, would_change = words.partition("What saving your page would change now")
        assert ("Be brief." in changed, "Step 2" in would_change) == (True, True)
        mine.buttons["_save"] = ""
        be_refused(mine)
        (message,) = mine.save("_overwrite")
        assert message.startswith("Saved as version 3.")
        _, second, third = FlowVersion.objects.order_by("number")
        assert [one.flow_spec.steps[0].system_message for one in (second, third)] == ["Be brief.", ""]
        assert (third.flow_spec.steps[1].max_retries, third.note) == (1, "Fewer retries.")

    def test_a_third_save_in_between_is_told_before_anything_is_overwritten(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        save(theirs, max_retries=0)
        mine.fill("steps-0-", max_retries=2)
        be_refused(mine)
        save(theirs, "steps-1-", max_retries=0)
        response = mine.post("_overwrite")
        assert "the last of 2 versions since you opened the page" in " ".join(response.content.decode().split())
        for text in ("", "1", "99", "abc", "\0"):
            mine.buttons["_overwrite"] = text
            assert mine.post("_overwrite").status_code == 200
        assert read_numbers() == [1, 2, 3]

    @pytest.mark.parametrize("by", ["window", "file", "deleted", "unreadable", "limits"])
    def test_however_it_came_about(self, mine: EditorPage, theirs: EditorPage, editor: Client, by: str) -> None:
        if by == "window":
            save(EditorPage(editor, mine.url), max_retries=0)
        elif by == "file":
            load_flow(document=make_flow(*STEPS, description="New.").to_document())
        elif by == "limits":
            save(theirs, "", max_runs_in_flight=5)
        else:
            save(theirs, max_retries=0)
        if by == "deleted":
            FlowVersion.objects.get(number=2).delete()
        elif by == "unreadable":
            # Versions don't change, unless a later ToolFlow has worked on the database.
            QuerySet.update(FlowVersion.objects.filter(number=2), spec={"name": "example", "colour": "red"})
        mine.fill("steps-0-", max_retries=2)
        words = {
            "window": "You, in another window, saved version 2",
            "file": "Another user saved version 2",
            "deleted": "bob saved it on",
            "unreadable": "The definition of version 2 can't be read by this version of ToolFlow.",
            "limits": "Runs in flight: 5 → none",
        }
        assert words[by] in be_refused(mine)
        assert mine.save("_overwrite")[0].startswith("Saved as version")


class TestNoConflict:
    def test_the_same_change_by_both_is_none(self, mine: EditorPage, theirs: EditorPage) -> None:
        for page in (theirs, mine):
            page.fill("steps-0-", DELETE="on")
            page.add_step(name="Newcomer", tool_name="newcomer", compute="{}")
            (message,) = page.save()
        assert message.startswith("Nothing changed since version 2.")
        assert (read_numbers(), read_names()) == ([1, 2], ["Step 2", "Newcomer"])

    def test_what_changes_no_definition_is_none(self, mine: EditorPage, theirs: EditorPage, colleague: Client) -> None:
        save(mine, max_retries=0)
        colleague.post(mine.url.replace("/change/", "/versions/2/make-live/"))
        colleague.post(mine.url.replace("/change/", "/archive/"))
        EditorPage(colleague, mine.url).save()
        mine.fill("steps-0-", max_retries=1)
        assert mine.save()[0].startswith("Saved as version 3.")
        assert Flow.objects.get().is_archived


class TestPartsThatCameOrWent:
    def test_a_step_that_they_added_stays_in_their_version_when_mine_is_saved(
        self, mine: EditorPage, theirs: EditorPage
    ) -> None:
        theirs.add_step(name="Newcomer", compute="{}", tool_name="")
        theirs.save()
        mine.fill("steps-0-", max_retries=0)
        assert "Newcomer" in be_refused(mine)
        mine.save("_overwrite")
        assert read_names() == ["Step 1", "Step 2"]
        assert FlowVersion.objects.get(number=2).flow_spec.steps[-1].name == "Newcomer"

    @pytest.mark.parametrize("gone", ["steps-0-", "steps-0-audits-0-"])
    def test_what_they_deleted_is_a_new_one_with_all_that_was_typed(
        self, mine: EditorPage, theirs: EditorPage, gone: str
    ) -> None:
        save(theirs, gone, DELETE="on")
        mine.fill("steps-0-", name="Still here")
        mine.fill("steps-0-audits-0-", name="Mine")
        assert mine.save_in_vain() == {}
        assert HEADING in mine.words
        mine.save("_overwrite")
        assert read_names() == ["Still here", "Step 2"]
        assert (AuditRule.objects.get().name, AuditRule.objects.get().step.name) == ("Mine", "Still here")

    def test_a_flow_that_they_deleted_comes_back_as_a_new_one(self, mine: EditorPage) -> None:
        Flow.objects.all().delete()
        mine.fill("steps-0-", name="Still here")
        assert mine.save_in_vain() == {}
        assert "This flow was deleted" in mine.words
        mine.url = "/admin/flows/flow/add/"
        assert mine.save() == ["Saved as version 1, which is live: new runs use it."]
        assert (read_names(), AuditRule.objects.get().name) == (["Still here", "Step 2"], "One")

    def test_a_page_that_lacks_a_step_is_refused(self, mine: EditorPage) -> None:
        mine.fields["steps-TOTAL_FORMS"] = "1"
        mine.save_in_vain()
        assert "The page arrived without “Step 2”." in mine.words
        assert StepDefinition.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_who_save_at_the_same_moment_one_is_told_about_the_other(
    mine: EditorPage, theirs: EditorPage, editor: Client, colleague: Client
) -> None:
    mine.fill("steps-0-", max_retries=1)
    theirs.fill("steps-0-", max_retries=2)
    assert post_together(mine, theirs) == [200, 302]
    assert (read_numbers(), Flow.objects.get().revision) == ([1, 2], 2)
    pages = [EditorPage(client) for client in (editor, colleague)]
    for page in pages:
        page.fill(title="Tea", name="tea")
        page.add_step(name="Brew", compute="{}", tool_name="")
    assert post_together(*pages) == [200, 302]
    assert Flow.objects.filter(name="tea").count() == 1
