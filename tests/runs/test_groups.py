"""The groups that the migrations make: what they may do, and what an installation had before them stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User

from runs.access_groups import ACCESS_GROUPS, LEFT_OUT, create_groups
from runs.trail.asking import told_already
from tests.runs.older_tables import hold_older_tables, migrate, migrate_to_newest

BEFORE = [("flows", "0003_revision"), ("runs", "0006_rename_packed_request")]
HERE = [("flows", "0003_revision"), ("runs", "0007_access_groups")]


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
            assert not {p for p in permissions if p.startswith("runs.delete_") and p != "runs.delete_ratelimit"}
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


LATER = frozenset({"runs.view_trailentry"})
"""What came after the migration that made the groups."""


class TestMigration:
    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture
    def before(self) -> Iterator[Any]:
        """The models before there were groups, with tables of that time."""
        with hold_older_tables(BEFORE) as models:
            yield models

    @pytest.mark.any_database
    def test_an_empty_database_gets_all_groups_with_all_permissions(self, before: Any) -> None:
        # Django makes permissions after the last migration only.
        assert not before.get_model("auth", "Permission").objects.exists()
        groups = migrate(HERE).get_model("auth", "Group").objects
        found = {name: read_permissions(groups.get(name=name)) for name in ACCESS_GROUPS}
        assert found == {name: permissions - LATER for name, permissions in ACCESS_GROUPS.items()}

    @pytest.mark.any_database
    def test_later_migrations_bring_the_rest(self, before: Any) -> None:
        migrate_to_newest()
        assert read_permissions(Group.objects.get(name="Administrator")) == ACCESS_GROUPS["Administrator"]

    @pytest.mark.any_database
    def test_groups_of_these_names_keep_their_members_and_get_what_they_lack(self, before: Any) -> None:
        editor = before.get_model("auth", "Group").objects.create(name="Editor")
        vera = before.get_model("auth", "User").objects.create(username="vera")
        vera.groups.add(editor)
        migrate(HERE)
        user = User.objects.get(username="vera")
        assert user.get_group_permissions() == ACCESS_GROUPS["Editor"]

    def test_going_back_keeps_groups_with_members(self, before: Any) -> None:
        migrate(HERE)
        # The trail has no table here yet.
        with told_already():
            User.objects.create_user("otto").groups.add(Group.objects.get(name="Operator"))
        migrate(BEFORE)
        assert list(Group.objects.values_list("name", flat=True)) == ["Operator"]
        assert User.objects.get(username="otto").groups.count() == 1
