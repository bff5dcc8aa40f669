"""The pages about a flow's versions: their list, and the difference of any two."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from flows.admin.version_pages import PAGE_SIZE
from flows.models import Flow, FlowVersion
from tests.engine.builders import make_flow, make_step
from tests.flows.versioned import read_words, sign_in, store_three_versions, store_version
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db


def list_address(flow: Flow) -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/"


def compare_address(flow: Flow, query: str = "") -> str:
    return f"/admin/flows/flow/{flow.pk}/versions/compare/{query}"


# The list


def test_the_list_says_of_each_version_what_it_changed(editor: Client) -> None:
    response = editor.get(list_address(store_three_versions()))
    rows = response.context["rows"]
    assert [(row.version.number, row.summary, row.is_live) for row in rows] == [
        (3, "“Step 1”: max_retries 1 → 2", False),
        (2, "“Step 1”: max_retries 3 → 1", False),
        (1, "The first version", True),
    ]
    words = read_words(response)
    assert "Version 1 is live" in words
    assert "Fewer tries" in words


def test_the_list_names_who_saved_a_version(editor: Client) -> None:
    flow = store_version(by=User.objects.get(username="ada")).flow
    assert "by ada" in read_words(editor.get(list_address(flow)))


def test_the_last_two_versions_are_marked_for_comparison(editor: Client) -> None:
    content = editor.get(list_address(store_three_versions())).content.decode()
    assert 'name="from" value="2" checked' in content
    assert 'name="to" value="3" checked' in content
    assert content.count(" checked") == 2


def test_the_oldest_version_on_a_page_is_told_from_the_one_on_the_next(editor: Client) -> None:
    for retries in range(PAGE_SIZE + 2):
        flow = store_version(max_retries=retries).flow
    first, second = (editor.get(list_address(flow), {"page": page}).context["rows"] for page in (1, 2))
    assert [row.version.number for row in (*first, *second)] == list(range(PAGE_SIZE + 2, 0, -1))
    assert first[-1].summary == f"“Step 1”: max_retries {1} → {2}"
    assert second[-1].summary == "The first version"


@pytest.mark.parametrize("page", ["0", "-1", "999", "x", ""])
def test_a_page_that_there_is_not_is_the_nearest_one(editor: Client, page: str) -> None:
    response = editor.get(list_address(store_three_versions()), {"page": page})
    assert len(response.context["rows"]) == 3


def test_a_flow_without_versions_says_how_to_make_one(editor: Client) -> None:
    flow = Flow.objects.create(name="empty", title="Empty")
    assert "saving the flow makes the first" in read_words(editor.get(list_address(flow)))
    assert "no versions yet" in read_words(editor.get(compare_address(flow)))


def test_what_can_no_longer_be_read_is_said_and_hides_nothing_else(editor: Client) -> None:
    flow = store_three_versions()
    FlowVersion.objects.create(flow=flow, number=4, spec={"name": "example", "colour": "red"}, digest="x" * 64)
    rows = editor.get(list_address(flow)).context["rows"]
    assert rows[0].summary == "The definition of version 4 can't be read by this version of ToolFlow."
    assert rows[1].summary == "“Step 1”: max_retries 1 → 2"
    response = editor.get(compare_address(flow, "?from=1&to=4"))
    assert response.status_code == 200
    assert "version 4 can't be read" in read_words(response)


@pytest.mark.parametrize("count", [2, PAGE_SIZE * 2])
def test_the_list_asks_the_database_as_often_for_many_versions_as_for_few(
    editor: Client, django_assert_num_queries: Any, count: int
) -> None:
    for retries in range(count):
        version = store_version(max_retries=retries)
    make_run(version)
    make_run(version)
    # Session, user, flow, number of versions, latest number, versions, runs.
    with django_assert_num_queries(7):
        editor.get(list_address(version.flow))


# The difference


def test_two_versions_are_compared(editor: Client) -> None:
    words = read_words(editor.get(compare_address(store_three_versions(), "?from=1&to=3")))
    assert "Version 1 → version 3" in words
    assert "max_retries 3 → 2" in words
    assert "“As it began”" in words or "As it began" in words


def test_they_can_be_compared_the_other_way_round(editor: Client) -> None:
    response = editor.get(compare_address(store_three_versions(), "?from=3&to=1"))
    assert "max_retries 2 → 3" in read_words(response)
    assert "?from=1&amp;to=3" in response.content.decode()


def test_the_last_two_are_compared_if_none_are_named(editor: Client) -> None:
    assert "Version 2 → version 3" in read_words(editor.get(compare_address(store_three_versions())))


def test_the_live_version_can_be_named_so(editor: Client) -> None:
    flow = store_three_versions()
    assert "Version 1 → version 2" in read_words(editor.get(compare_address(flow, "?from=live&to=2")))
    flow.live_version = None
    flow.save()
    assert "No version of this flow is live." in read_words(editor.get(compare_address(flow, "?from=live&to=2")))


def test_a_version_is_no_different_from_itself(editor: Client) -> None:
    assert "No difference." in read_words(editor.get(compare_address(store_three_versions(), "?from=2&to=2")))


def test_what_people_wrote_is_shown_as_text(editor: Client) -> None:
    store_version(system_message="Read `it`.")
    flow = store_version(system_message="<script>alert(1)</script>\n" * 9, name="<b>Bold</b>", tool_name="tool_1").flow
    content = editor.get(compare_address(flow)).content.decode()
    assert "<script>alert" not in content
    assert "<b>Bold" not in content
    assert "&lt;b&gt;Bold&lt;/b&gt;" in content


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?from=1&to=9", "This flow has no version 9."),
        ("?from=x&to=1", "“x” is no number of a version."),
        ("?from=1", "Name both versions that should be compared."),
        ("?from=-1&to=1", "“-1” is no number of a version."),
        ("?from=1&to=99999999999999999999999999", "is no number of a version."),
        ("?from=²&to=1", "“²” is no number of a version."),
        ("?from=1&to=%00", "is no number of a version."),
    ],
)
def test_a_version_that_there_is_not_is_a_sentence_with_a_way_back(editor: Client, query: str, sentence: str) -> None:
    flow = store_three_versions()
    response = editor.get(compare_address(flow, query))
    assert response.status_code == 404
    assert sentence in read_words(response)
    assert f'href="{list_address(flow)}"' in response.content.decode()


def test_a_single_version_has_nothing_to_be_compared_with(editor: Client) -> None:
    assert "the flow has one version" in read_words(editor.get(compare_address(store_version().flow)))


def test_versions_of_other_flows_are_not_compared(editor: Client) -> None:
    flow = store_version().flow
    store_three_versions()
    other = Flow.objects.create(name="other", title="Other")
    spec = make_flow(make_step())
    FlowVersion.objects.create(flow=other, number=7, spec=spec.to_document(), digest=spec.digest)
    assert "no version 7" in read_words(editor.get(compare_address(flow, "?from=1&to=7")))


@pytest.mark.parametrize("count", [2, 30])
def test_a_comparison_asks_the_database_as_often_for_many_versions_as_for_few(
    editor: Client, django_assert_num_queries: Any, count: int
) -> None:
    for retries in range(count):
        flow = store_version(max_retries=retries).flow
    # Session, user, flow, numbers, both versions, their runs.
    with django_assert_num_queries(6):
        editor.get(compare_address(flow))


# Who may


def test_whoever_may_see_flows_sees_their_versions_and_is_offered_no_changes(client: Client) -> None:
    flow = store_three_versions()
    sign_in(client, "view_flow")
    for address in (list_address(flow), compare_address(flow)):
        response = client.get(address)
        assert response.status_code == 200
        content = response.content.decode()
        assert "restore" not in content
        assert "make-live" not in content
        assert "flowversion" not in content


def test_others_do_not_see_them(client: Client) -> None:
    flow = store_three_versions()
    assert client.get(list_address(flow))["Location"].startswith("/admin/login/")
    sign_in(client, "view_flowversion")
    for address in (list_address(flow), compare_address(flow)):
        assert client.get(address).status_code == 403


def test_of_a_flow_that_there_is_not_there_are_no_pages(editor: Client) -> None:
    assert editor.get("/admin/flows/flow/7/versions/").status_code == 404
    assert editor.get("/admin/flows/flow/7/versions/compare/").status_code == 404


def test_the_editor_leads_to_the_versions_and_compares_with_the_live_one(editor: Client) -> None:
    flow = store_three_versions()
    content = editor.get(f"/admin/flows/flow/{flow.pk}/change/").content.decode()
    assert f'href="{list_address(flow)}"' in content
    assert f'href="{compare_address(flow)}?from=1&amp;to=3"' in content
    assert "Fewer tries" in content
