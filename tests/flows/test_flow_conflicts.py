"""Two editors who save the same flow: the second is warned, sees the difference, and loses nothing."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test import Client

from flows.models import Flow, FlowVersion
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import EditorPage, PageReader, fill_new_flow, open_flow, read_rows
from tests.flows.loading import load_flow

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

STEPS = (make_step(1), make_step(2))
HEADING = "Not saved: the flow was saved while you were editing it"


@pytest.fixture
def mine(editor: Client) -> EditorPage:
    """The flow's page as ada opened it."""
    return open_flow(editor, *STEPS)


@pytest.fixture
def theirs(mine: EditorPage, colleague: Client) -> EditorPage:
    """The same page as bob opened it, after her."""
    return EditorPage(colleague, mine.url)


def save(page: EditorPage, step: int = 0, **fields: Any) -> list[str]:
    page.steps[step] |= fields
    return page.save()


def be_told(page: EditorPage, button: str = "_save", value: str = "") -> tuple[str, int]:
    """Save in vain, nothing is stored; gives the words of the notice, and the version that may be overwritten."""
    before, response = read_rows(), page.post(button, value)
    assert (response.status_code, read_rows()) == (409, before)
    reader = PageReader(response.json()["conflict"])
    assert reader.buttons["_overwrite"] == str(response.json()["latest"])
    return " ".join(reader.text.split()), response.json()["latest"]


def read_names(number: int) -> list[str]:
    return [step.name for step in FlowVersion.objects.get(number=number).flow_spec.steps]


def test_who_saved_what_and_what_saving_would_change_and_may_save_all_the_same(
    mine: EditorPage, theirs: EditorPage
) -> None:
    save(theirs, system_message="Be brief.")
    mine.steps[1]["name"] = ""
    assert list(mine.be_refused("_overwrite", "2")) == ["/steps/1/name"], "problems come first"
    mine.steps[1] |= {"name": "Step 2", "max_retries": 1}
    mine.note = "Fewer retries."
    words, latest = be_told(mine)
    assert HEADING in words and "bob saved version 2 on " in words
    changed, _, would_change = words.partition("What saving your page would change now")
    assert ("Be brief." in changed, "Step 2" in would_change, latest) == (True, True, 2)
    assert mine.save("_overwrite", "2")[0].startswith("Saved as version 3.")
    _, second, third = FlowVersion.objects.order_by("number")
    assert [one.flow_spec.steps[0].system_message for one in (second, third)] == ["Be brief.", ""]
    assert (third.flow_spec.steps[1].max_retries, third.note) == (1, "Fewer retries.")


def test_without_scripts_the_page_comes_back_with_what_was_typed(mine: EditorPage, theirs: EditorPage) -> None:
    save(theirs, max_retries=0)
    typed = mine.fields["text"].replace("name: Step 2", "name: Menu")
    mine.read(mine.post_form(text=typed), status=409)
    assert (HEADING in mine.words, mine.fields["text"], mine.fields["base_version"]) == (True, typed, "1")
    mine.read(mine.post_form(), status=409)
    assert mine.post_form("_overwrite").status_code == 302
    assert read_names(3) == ["Step 1", "Menu"]


@pytest.mark.parametrize("by", ["window", "file", "base_deleted", "unreadable"])
def test_however_it_came_about(mine: EditorPage, theirs: EditorPage, editor: Client, by: str) -> None:
    if by == "window":
        save(EditorPage(editor, mine.url), max_retries=0)
    elif by == "file":
        load_flow(make_flow(*STEPS, description="New.").to_document())
    else:
        save(theirs, max_retries=0)
    if by == "base_deleted":
        flow = Flow.objects.get()
        flow.make_live(flow.versions.get(number=2))
        flow.versions.get(number=1).delete()
    elif by == "unreadable":
        # Versions don't change, unless a later ToolFlow has worked on the database.
        QuerySet.update(FlowVersion.objects.filter(number=2), spec={"name": "example", "colour": "red"})
    mine.steps[0]["max_retries"] = 2
    words = {
        "window": "You, in another window, saved version 2",
        "file": "Another user saved version 2",
        "base_deleted": "The version that you started from was deleted",
        "unreadable": "The definition of version 2 can't be read by this version of ToolFlow.",
    }
    assert words[by] in be_told(mine)[0]
    assert mine.save("_overwrite", "2")[0].startswith("Saved as version 3")


def test_a_version_that_came_after_a_deleted_one_is_not_taken_for_it(mine: EditorPage, theirs: EditorPage) -> None:
    save(theirs, max_retries=0)
    opened = EditorPage(mine.client, mine.url)
    FlowVersion.objects.get(number=2).delete()
    save(EditorPage(theirs.client, theirs.url), system_message="Be brief.")
    opened.steps[1]["max_retries"] = 1
    words, latest = be_told(opened)
    assert ("The version that you started from was deleted" in words, latest) == (True, 3)


def test_what_changes_no_definition_is_no_conflict(mine: EditorPage, colleague: Client) -> None:
    save(mine, max_retries=0)
    colleague.post(mine.url.replace("/change/", "/versions/2/make-live/"))
    colleague.post(mine.url.replace("/change/", "/archive/"))
    colleague.post(mine.url.replace("/change/", "/settings/"), {"max_runs_in_flight": "5", "budget_period": "day"})
    EditorPage(colleague, mine.url).save()
    assert save(mine, max_retries=1)[0].startswith("Saved as version 3.")
    flow = Flow.objects.get()
    assert (flow.is_archived, flow.max_runs_in_flight) == (True, 5)


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


@pytest.mark.django_db(transaction=True)
def test_of_two_who_save_at_the_same_moment_one_reads_about_the_other(
    mine: EditorPage, theirs: EditorPage, editor: Client, colleague: Client
) -> None:
    mine.steps[0]["max_retries"], theirs.steps[0]["max_retries"] = 1, 2
    assert post_together(mine, theirs) == [200, 409]
    assert FlowVersion.objects.count() == 2
    pages = [fill_new_flow(client) for client in (editor, colleague)]
    pages[0].steps[0]["max_retries"] = 1
    assert post_together(*pages) == [200, 422]
    assert Flow.objects.get(name="invoice-extraction").versions.count() == 1
    document = FlowVersion.objects.latest("pk").spec
    flows = [load_flow({**document, "name": name}).flow for name in ("one", "two")]
    renamed = [
        EditorPage(client, f"/admin/flows/flow/{flow.pk}/change/")
        for client, flow in zip((editor, colleague), flows, strict=True)
    ]
    for page in renamed:
        page.document["name"] = "three"
    assert post_together(*renamed) == [200, 422]
