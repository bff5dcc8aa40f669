"""Views of the list of runs that users keep under a name."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from runs.facets import add_facets
from runs.models import FacetKind, SavedView, saved_view
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import get_page

pytestmark = pytest.mark.django_db

FILTERS = "flow=colour-theme&status=failed%2Cerrored"


def save_view(client: Client, name: str, query: str = FILTERS, **values: str) -> str:
    """Save filters under a name as the form of the list does; gives the level of the message that follows."""
    make_version(make_page_flow())
    answer = client.post(reverse("runs:saved-view-add"), {"name": name, "query": query, **values}, follow=True)
    assert answer.status_code == 200
    (message,) = answer.context["messages"]
    return str(message.level_tag)


def store(name: str, query: str, owner: str = "ada", **fields: Any) -> SavedView:
    user, _ = User.objects.get_or_create(username=owner)
    return SavedView.objects.create(owner=user, name=name, query=query, **fields)


def read_tabs(client: Client, query: str = "") -> tuple[str, int | None]:
    """The name of the current tab, and the number of the view that the page offers to delete."""
    page = unescape(get_page(client, f"/runs/?{query}"))
    bar = re.search(r'(?s)<nav class="view-tabs".*?</nav>', page)
    current = re.search(r'aria-current="page"[^>]*>([^<]*)', bar[0]) if bar else None
    offered = re.search(r'action="/runs/views/(\d+)/delete/"', page)
    return current[1] if current else "", int(offered[1]) if offered else None


def test_a_saved_view_is_a_tab_that_leads_to_its_filters(viewer: Client) -> None:
    assert save_view(viewer, "  Not   passed ") == "success"
    assert f'<a href="/runs/?{FILTERS}">Not passed</a>' in unescape(get_page(viewer, "/runs/"))
    assert read_tabs(viewer, FILTERS) == ("Not passed", SavedView.objects.get().pk)
    assert read_tabs(viewer) == ("All runs", None)
    assert "saved-view-add" not in get_page(viewer, f"/runs/?{FILTERS}")


def test_only_valid_filters_are_saved(viewer: Client) -> None:
    save_view(viewer, "Mine", "before=7&status=failed&cost=much&next=//elsewhere")
    assert SavedView.objects.get().query == "status=failed"


@pytest.mark.parametrize(
    ("name", "query"),
    [
        (" ", FILTERS),
        ("x" * 61, FILTERS),
        ("a\u202eb", FILTERS),
        ("a\x00b", FILTERS),
        ("All", ""),
        ("All", "status=\x00"),
    ],
)
def test_a_bad_name_or_no_filter_is_refused(viewer: Client, name: str, query: str) -> None:
    assert save_view(viewer, name, query) == "error"
    assert not SavedView.objects.exists()


def test_names_are_unique_for_each_user_and_views_bounded(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_view, "MAX_VIEWS", 2)
    store("Theirs", "status=failed", "grace")
    assert [save_view(viewer, name) for name in ("Mine", "Mine", "Theirs", "Third")] == [
        *("success", "error", "success", "error")
    ]


@pytest.mark.parametrize(
    ("views", "query", "current"),
    [
        ({"Old": "flow=gone&status=failed"}, "flow=gone&status=failed", "Old"),
        # Not the view that has the filters which are left.
        ({"Failed": "status=failed", "Old": "flow=gone&status=failed"}, "flow=gone&status=failed&before=900", "Old"),
        ({"Failed": "status=failed", "Old": "flow=gone&status=failed"}, "status=failed", "Failed"),
        ({"Old": "flow=gone"}, "flow=gone", "Old"),
        ({"Old": "flow=gone"}, "", "All runs"),
    ],
)
def test_a_view_with_filters_that_are_no_longer_valid_can_be_deleted(
    viewer: Client, views: dict[str, str], query: str, current: str
) -> None:
    stored = {name: store(name, kept).pk for name, kept in views.items()}
    assert read_tabs(viewer, query) == (current, stored.get(current))


def test_others_see_a_shared_view_and_can_not_delete_it(viewer: Client) -> None:
    store("For me", "status=failed", "grace")
    shared = store("For us", "status=errored", "grace", is_shared=True)
    assert read_tabs(viewer, "status=errored") == ("For us", None)
    assert "For me" not in get_page(viewer, "/runs/")
    for view_id in (shared.pk, 10**30):
        assert viewer.post(reverse("runs:saved-view-delete", args=[view_id])).status_code == 404
    own = store("Mine", "status=failed")
    viewer.post(reverse("runs:saved-view-delete", args=[own.pk]))
    assert not SavedView.objects.filter(name="Mine").exists() and SavedView.objects.count() == 2


def test_sharing_takes_the_permission_to_change_runs(viewer: Client) -> None:
    save_view(viewer, "Mine", shared="yes")
    User.objects.get().user_permissions.add(Permission.objects.get(codename="change_run"))
    save_view(viewer, "Ours", shared="yes")
    assert list(SavedView.objects.values_list("name", "is_shared")) == [("Mine", False), ("Ours", True)]


def test_views_change_by_posts_of_this_site_only(viewer: Client) -> None:
    assert viewer.get(reverse("runs:saved-view-add")).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())
    assert strict.post(reverse("runs:saved-view-add"), {"name": "Mine", "query": FILTERS}).status_code == 403


def test_fields_suggest_what_runs_have(viewer: Client) -> None:
    first, second = make_stored_run(), make_stored_run()
    add_facets((run.pk, (FacetKind.CODE, code)) for run in (first, second) for code in ("length", "<b>", "hex"))
    add_facets([(second.pk, (FacetKind.LABEL, "pilot")), (second.pk, (FacetKind.SEVERITY, "low"))])
    page = get_page(viewer, reverse("runs:saved-view-values"))
    codes = '<option value="&lt;b&gt;"></option><option value="hex"></option><option value="length"></option>'
    assert f'<datalist id="known-code">{codes}</datalist>' in page
    assert '<datalist id="known-label"><option value="pilot"></option></datalist>' in page
    assert '<datalist id="known-audit"></datalist>' in page
