"""The groups that the migrations make, and what they may do."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User

from runs.access_groups import ACCESS_GROUPS, LEFT_OUT, create_groups


def read_permissions(group: Any) -> set[str]:
    """What a group may do, as ``app.action_model``."""
    rows = group.permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


class TestDefinition:
    pytestmark = pytest.mark.django_db

    def test_every_permission_of_flows_and_runs_is_given_or_left_out_on_purpose(self) -> None:
        rows = Permission.objects.filter(content_type__app_label__in=["flows", "runs"])
        existing = {f"{row.content_type.app_label}.{row.codename}" for row in rows.select_related("content_type")}
        given = frozenset().union(*ACCESS_GROUPS.values())
        left_out = frozenset().union(*LEFT_OUT.values())
        assert sorted(existing - given - left_out) == []
        assert sorted(given & left_out) == []
        unknown = (given | left_out) - existing
        assert sorted(name for name in unknown if not name.startswith("auth.")) == []

    def test_each_group_may_do_what_those_before_it_may(self) -> None:
        groups = list(ACCESS_GROUPS.values())
        assert all(earlier < later for earlier, later in pairwise(groups))

    def test_nobody_deletes_history_and_only_administrators_change_users(self) -> None:
        for name, permissions in ACCESS_GROUPS.items():
            deleted = {p for p in permissions if p.startswith("runs.delete_")}
            assert deleted <= {"runs.delete_ratelimit", "runs.delete_webhookendpoint"}
            assert any(p.startswith("auth.") for p in permissions) == (name == "Administrator")

    def test_an_installation_has_the_groups_with_their_permissions(self) -> None:
        create_groups(apps=apps, using="default")
        for name, permissions in ACCESS_GROUPS.items():
            assert read_permissions(Group.objects.get(name=name)) == permissions

    def test_making_them_again_changes_nothing_and_keeps_what_somebody_added(self) -> None:
        create_groups(apps=apps, using="default")
        viewer = Group.objects.get(name="Viewer")
        viewer.permissions.add(Permission.objects.get(codename="view_ratelimit"))
        viewer.user_set.add(User.objects.create_user("vera"))
        create_groups(apps=apps, using="default")
        assert Group.objects.filter(name__in=ACCESS_GROUPS).count() == len(ACCESS_GROUPS)
        assert read_permissions(viewer) == ACCESS_GROUPS["Viewer"] | {"runs.view_ratelimit"}
        assert viewer.user_set.count() == 1

    def test_a_later_release_gives_what_it_brings_and_not_what_was_taken_away(self) -> None:
        create_groups(apps=apps, using="default")
        viewer = Group.objects.get(name="Viewer")
        viewer.permissions.remove(*Permission.objects.filter(codename__in=["view_worker", "view_issue"]))
        create_groups(apps=apps, using="default", permissions=["runs.view_issue", "runs.view_ratelimit"])
        assert read_permissions(viewer) == ACCESS_GROUPS["Viewer"] - {"runs.view_worker"}


class TestMigration:
    def test_an_empty_database_gets_all_groups_with_all_permissions(self, tmp_path: Path) -> None:
        path = tmp_path / "new.sqlite3"
        environment = {**os.environ, "DATABASE_URL": f"sqlite:///{path}"}
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True)
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute(
                "SELECT g.name, c.app_label || '.' || p.codename FROM auth_group g "
                "JOIN auth_group_permissions gp ON gp.group_id = g.id "
                "JOIN auth_permission p ON p.id = gp.permission_id "
                "JOIN django_content_type c ON c.id = p.content_type_id"
            ).fetchall()
        found = {group: {name for own, name in rows if own == group} for group, _ in rows}
        assert found == ACCESS_GROUPS
