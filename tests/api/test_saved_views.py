"""Views of the list of runs, kept and read by scripts."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from runs.models import SavedView
from tests.api.asking import SIGN_IN_QUERIES, Script, make_user, read, read_type, settle
from tests.api.long_work import make_view
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db

FAILED = {"name": "Failed", "filters": {"status": ["failed", "errored"]}}


def save(script: Script, **body: Any) -> Any:
    return script.post("saved-views", {**FAILED, **body})


def test_filters_are_kept_under_a_name_and_lead_to_their_runs(viewer: Script) -> None:
    make_run()
    failed = make_run(status="failed", ended_at="2026-01-01T00:00:00Z")
    answer = save(viewer, name="  Failed   ones ")
    document = answer.json()
    assert (answer.status_code, answer["Location"]) == (201, document["url"])
    assert read(viewer, document["url"]) == document
    assert (document["name"], document["created_by"], document["is_shared"]) == ("Failed ones", "viewer", False)
    assert document["filters"] == {"status": ["failed", "errored"]}
    assert [run["id"] for run in read(viewer, document["runs_url"])["items"]] == [failed.pk]
    assert document["page_url"] == "http://testserver/runs/?status=failed%2Cerrored"


def test_the_list_has_one_s_own_and_what_others_share(
    viewer: Script, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    other = make_user("olga")
    shared = make_view(other, "Shared", is_shared=True)
    hidden = make_view(other, "Hidden")
    own = save(viewer).json()["id"]
    settle(viewer)
    with django_assert_num_queries(SIGN_IN_QUERIES + 1):
        items = read(viewer, "saved-views")["items"]
    assert [(item["id"], item["created_by"]) for item in items] == [(own, "viewer"), (shared.pk, "olga")]
    assert viewer.get(f"saved-views/{hidden.pk}").status_code == 404
    # One deletes one’s own only.
    for number, status in ((shared.pk, 404), (2**63, 404), (own, 204)):
        assert viewer.ask("DELETE", f"saved-views/{number}").status_code == status
    assert set(SavedView.objects.all()) == {shared, hidden}


def test_a_name_is_unique_and_the_number_of_views_bounded(viewer: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.models.saved_view.MAX_VIEWS", 2)
    assert save(viewer).status_code == 201
    assert read_type(save(viewer)) == (409, "name-taken")
    assert save(viewer, name="Other").status_code == 201
    assert read_type(save(viewer, name="Third")) == (409, "too-many-views")


def test_sharing_takes_the_permission_to_change_runs(viewer: Script, operator: Script) -> None:
    assert read_type(save(viewer, is_shared=True)) == (403, "forbidden")
    assert save(operator, is_shared=True).json()["is_shared"] is True
    assert [item["created_by"] for item in read(viewer, "saved-views")["items"]] == ["operator"]
