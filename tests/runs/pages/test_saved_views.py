"""Views of the list of runs that users keep under a name."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from runs.facets import add_facets
from runs.models import FacetKind, SavedView
from runs.pages.saved_views import MOST_VIEWS
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

FILTERS = "flow=colour-theme&status=failed%2Cerrored"


def save_view(client: Client, name: str, query: str = FILTERS, **values: str) -> str:
    """Keep filters under a name as the form of the list does; gives the words of the page that follows."""
    make_version(make_page_flow())
    answer = client.post(reverse("runs:saved-view-add"), {"name": name, "query": query, **values}, follow=True)
    assert answer.status_code == 200
    return read_words(answer.content.decode())


def test_filters_are_kept_under_a_name_and_come_back_by_it(viewer: Client) -> None:
    assert "The view “Not passed” is saved." in save_view(viewer, "  Not   passed ")
    page = unescape(get_page(viewer, "/runs/"))
    assert f'<a href="/runs/?{FILTERS}">Not passed</a>' in page
    page = unescape(get_page(viewer, f"/runs/?{FILTERS}"))
    assert f'<a href="/runs/?{FILTERS}" aria-current="page">Not passed</a>' in page
    assert "Save as a view" not in page


def test_what_a_view_keeps_are_filters_that_make_sense(viewer: Client) -> None:
    save_view(viewer, "Mine", "before=7&status=failed&cost=much&next=//elsewhere")
    assert SavedView.objects.get().query == "status=failed"


@pytest.mark.parametrize(
    ("name", "query", "sentence"),
    [
        (" ", FILTERS, "A view needs a name."),
        ("x" * 61, FILTERS, "The name of a view has at most 60 characters; this one has 61."),
        ("a\u202eb", FILTERS, "The name of a view can’t have characters that nobody sees."),
        ("a\x00b", FILTERS, "The name of a view can’t have characters that nobody sees."),
        ("All", "", "Choose filters first: a view without any is the list itself."),
        ("All", "status=\x00", "Choose filters first"),
    ],
)
def test_a_bad_name_or_no_filter_gets_a_sentence(viewer: Client, name: str, query: str, sentence: str) -> None:
    assert sentence in save_view(viewer, name, query)
    assert not SavedView.objects.exists()


def test_a_name_is_used_once_by_each_user(viewer: Client) -> None:
    save_view(viewer, "Mine")
    assert "You have a view “Mine” already; choose another name" in save_view(viewer, "Mine", "status=failed")
    SavedView.objects.create(owner=User.objects.create_user("grace"), name="Theirs", query="status=failed")
    assert "is saved" in save_view(viewer, "Theirs", "status=failed")
    assert SavedView.objects.count() == 3


def test_there_is_a_limit_for_each_user(viewer: Client) -> None:
    ada = User.objects.get()
    SavedView.objects.bulk_create(SavedView(owner=ada, name=f"{n}", query="status=failed") for n in range(MOST_VIEWS))
    assert "You have 50 views already; delete one that you no longer need." in save_view(viewer, "One more")
    assert SavedView.objects.count() == MOST_VIEWS


class TestStaleViews:
    """Views whose filters make no sense any more: the flow has another name, the user is gone."""

    STALE = "flow=gone&status=failed"

    def keep(self, name: str, query: str, **fields: Any) -> SavedView:
        return SavedView.objects.create(**{"owner": User.objects.get(username="ada"), **fields}, name=name, query=query)

    def test_its_owner_is_on_it_and_can_delete_it(self, viewer: Client) -> None:
        view = self.keep("Old", self.STALE)
        page = get_page(viewer, f"/runs/?{self.STALE}")
        words = read_words(page)
        assert "There is no flow “gone”." in words
        assert 'aria-current="page">Old</a>' in page
        assert "Delete this view , “Old”" in words
        assert f'action="/runs/views/{view.pk}/delete/"' in page
        # What the page shows is not what the view keeps.
        assert "Save as a view" in page

    def test_another_view_with_the_filters_that_are_left_is_not_deleted_in_its_place(self, viewer: Client) -> None:
        other, view = self.keep("Failed", "status=failed"), self.keep("Old", self.STALE)
        page = get_page(viewer, f"/runs/?{self.STALE}&before=900")
        assert 'aria-current="page">Old</a>' in page and 'aria-current="page">Failed</a>' not in page
        assert f'action="/runs/views/{view.pk}/delete/"' in page
        page = get_page(viewer, "/runs/?status=failed")
        assert 'aria-current="page">Failed</a>' in page and 'aria-current="page">Old</a>' not in page
        assert f'action="/runs/views/{other.pk}/delete/"' in page

    def test_one_that_keeps_nothing_that_makes_sense_is_not_the_whole_list(self, viewer: Client) -> None:
        self.keep("Old", "flow=gone")
        page = get_page(viewer, "/runs/?flow=gone")
        assert 'aria-current="page">Old</a>' in page and 'aria-current="page">All runs</a>' not in page
        assert "Delete this view" in page
        assert 'aria-current="page">All runs</a>' in get_page(viewer, "/runs/")

    def test_that_of_somebody_else_can_not_be_deleted(self, viewer: Client) -> None:
        self.keep("Theirs", self.STALE, owner=User.objects.create_user("grace"), is_shared=True)
        page = get_page(viewer, f"/runs/?{self.STALE}")
        assert "Delete this view" not in page


def test_others_see_a_view_only_if_it_is_shared(viewer: Client) -> None:
    grace = User.objects.create_user("grace")
    SavedView.objects.create(owner=grace, name="For me", query="status=failed")
    SavedView.objects.create(owner=grace, name="For us", query="status=errored", is_shared=True)
    words = read_words(get_page(viewer, "/runs/?status=errored"))
    assert "For us , shared by grace" in words
    assert "For me" not in words
    assert "Delete this view" not in words


def test_sharing_is_for_those_who_may_change_runs(viewer: Client) -> None:
    save_view(viewer, "Mine", shared="yes")
    assert not SavedView.objects.get().is_shared
    User.objects.get().user_permissions.add(Permission.objects.get(codename="change_run"))
    assert "is saved and shared with everybody" in save_view(viewer, "Ours", shared="yes")
    assert SavedView.objects.get(name="Ours").is_shared


def test_a_view_is_deleted_by_its_owner_only(viewer: Client) -> None:
    save_view(viewer, "Mine")
    theirs = SavedView.objects.create(
        owner=User.objects.create_user("grace"), name="Theirs", query=FILTERS, is_shared=True
    )
    assert viewer.post(reverse("runs:saved-view-delete", args=[theirs.pk])).status_code == 404
    assert viewer.post(reverse("runs:saved-view-delete", args=[10**30])).status_code == 404
    mine = SavedView.objects.get(name="Mine")
    answer = viewer.post(reverse("runs:saved-view-delete", args=[mine.pk]), follow=True)
    assert "The view “Mine” is deleted." in read_words(answer.content.decode())
    assert list(SavedView.objects.all()) == [theirs]


def test_views_are_not_changed_by_following_a_link_or_from_another_site(viewer: Client) -> None:
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
