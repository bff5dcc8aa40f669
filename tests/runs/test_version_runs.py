"""What is known of the runs of each version: how many there are, and how many of those that ended succeeded."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client, RequestFactory
from django.urls import reverse

from flows.admin.version_admin import FlowVersionAdmin, RunCount
from flows.models import FlowVersion
from runs.models import Run, RunStatus
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client) -> Client:
    """A browser in which somebody is signed in who may do everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def end_runs(version: FlowVersion, **counts: int) -> None:
    """So many runs with each status."""
    for status, count in counts.items():
        for _ in range(count):
            run = make_run(version)
            Run.objects.filter(pk=run.pk).update(status=RunStatus(status), ended_at=Now())


def count_runs(*versions: FlowVersion) -> list[RunCount]:
    version_admin = admin.site.get_model_admin(FlowVersion)
    assert isinstance(version_admin, FlowVersionAdmin)
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True, is_active=True)  # asked for permissions, not stored
    counts = version_admin.count_runs(request, versions)
    return [counts[version.pk] for version in versions]


def test_runs_that_are_under_way_or_were_cancelled_do_not_count_as_ended() -> None:
    version = make_version()
    end_runs(version, succeeded=3, failed=1, errored=1, cancelled=2)
    make_run(version)
    (count,) = count_runs(version)
    assert count == RunCount(total=8, ended=5, succeeded=3)
    assert count.pass_rate == "60 %"


@pytest.mark.parametrize(
    ("ended", "succeeded", "rate"),
    [(0, 0, "—"), (3, 3, "100 %"), (3, 0, "0 %"), (3, 2, "67 %"), (1_000, 999, "over 99 %"), (1_000, 1, "under 1 %")],
)
def test_a_pass_rate_says_all_or_none_only_where_it_is_so(ended: int, succeeded: int, rate: str) -> None:
    assert RunCount(total=ended, ended=ended, succeeded=succeeded).pass_rate == rate


def test_versions_are_counted_in_one_query(django_assert_num_queries: Any) -> None:
    first, second, third = make_version(), make_version(), make_version()
    end_runs(first, succeeded=2)
    end_runs(third, failed=1)
    with django_assert_num_queries(1):
        assert count_runs(first, second, third) == [RunCount(2, 2, 2), RunCount(), RunCount(1, 1, 0)]


def test_the_pages_of_versions_say_it(operator: Client) -> None:
    first, second = make_version(), make_version()
    end_runs(first, succeeded=1, failed=3)
    rows = operator.get(f"/admin/flows/flow/{first.flow_id}/versions/").context["rows"]
    assert [row.runs.pass_rate for row in rows] == ["—", "25 %"]
    page = operator.get(f"/admin/flows/flow/{first.flow_id}/versions/compare/").content.decode()
    assert "4 runs" in page
    assert "25 % (1 of 4)" in page
    assert "25 % (1 of 4 that ended)" in operator.get(f"/admin/flows/flowversion/{first.pk}/change/").content.decode()
    assert second.flow_id == first.flow_id


def test_who_may_not_see_runs_is_not_told_how_many_there_are(client: Client) -> None:
    version = make_version()
    end_runs(version, succeeded=3)
    ada = User.objects.create_user("ada", is_staff=True)
    ada.user_permissions.set(Permission.objects.filter(codename__in=["view_flow", "view_flowversion"]))
    client.force_login(ada)
    versions = reverse("admin:flows_flow_versions", args=[version.flow_id])
    assert "Pass rate</dt>" not in client.get(versions).content.decode()
    for address in (
        reverse("admin:flows_flowversion_changelist"),
        reverse("admin:flows_flowversion_change", args=[version.pk]),
    ):
        page = client.get(address)
        assert page.status_code == 200
        assert "run_count" not in page.content.decode()
    ada.user_permissions.add(Permission.objects.get(codename="view_run"))
    assert "Pass rate</dt>" in client.get(versions).content.decode()
