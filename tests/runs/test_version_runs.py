"""What the pages of versions say of their runs: how many there are, and how many of those that ended succeeded."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client

from flows.admin.version_admin import RunCount
from flows.models import FlowVersion
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


def end_runs(version: FlowVersion, **counts: int) -> None:
    """So many runs with each status."""
    for status, count in counts.items():
        for _ in range(count):
            make_run(version, status=status, ended_at=Now())


@pytest.mark.parametrize(
    ("ended", "succeeded", "rate"),
    [(0, 0, "—"), (3, 3, "100 %"), (3, 0, "0 %"), (3, 2, "67 %"), (1_000, 999, "over 99 %"), (1_000, 1, "under 1 %")],
)
def test_a_pass_rate_says_all_or_none_only_where_it_is_so(ended: int, succeeded: int, rate: str) -> None:
    assert RunCount(total=ended, ended=ended, succeeded=succeeded).pass_rate == rate


def test_cancelled_runs_and_those_under_way_have_not_ended(admin_client: Client) -> None:
    first, second = make_version(), make_version()
    end_runs(first, succeeded=1, failed=2, errored=1, cancelled=2)
    make_run(first)
    versions = f"/admin/flows/flow/{first.flow_id}/versions/"
    rows = admin_client.get(versions).context["rows"]
    counts = [(row.runs.total, row.runs.ended, row.runs.succeeded) for row in rows]
    assert counts == [(0, 0, 0), (7, 4, 1)]
    for page in (f"{versions}compare/", f"/admin/flows/flowversion/{first.pk}/change/"):
        assert "25 % (1 of 4" in admin_client.get(page).content.decode()
    assert second.flow_id == first.flow_id


def test_who_may_not_see_runs_is_not_told_how_many_there_are(client: Client) -> None:
    version = make_version()
    end_runs(version, succeeded=3)
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_flow", "view_flowversion"]))
    client.force_login(user)
    pages: dict[str, Any] = {
        "Pass rate</dt>": f"/admin/flows/flow/{version.flow_id}/versions/",
        "column-run_count": "/admin/flows/flowversion/",
        "field-run_count": f"/admin/flows/flowversion/{version.pk}/change/",
    }

    def list_telling() -> list[bool]:
        return [mark in client.get(page).content.decode() for mark, page in pages.items()]

    assert list_telling() == [False] * 3
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    assert list_telling() == [True] * 3
