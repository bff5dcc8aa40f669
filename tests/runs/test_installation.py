"""What an installation begins with: groups and schedules; and what ``manage.py check`` and an older database refuse."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.core.checks import Tags, run_checks
from django.db import connection
from django.utils.module_loading import import_string
from django_q.models import Schedule

from runs.access_groups import ACCESS_GROUPS, create_groups
from runs.checks import TAG
from runs.models.run import in_future
from runs.models.worker import SILENCE
from tests.conftest import IS_LONG
from tests.databases import share_sqlite_template
from tests.runs.builders import make_worker
from tests.site.test_settings import start_command

POSTGRES = "postgres://me:secret@127.0.0.1:1/toolflow"

UNGIVEN_MODELS = frozenset(
    {
        "apitoken", "attempt", "bulkaction", "dailyaudits", "dailyissues", "dailyruns", "dailysteps", "flowdraft",
        "flowspending", "flowversion", "idempotentrequest", "issue", "limitledger", "originalinput", "run", "runfacet",
        "savedview", "step", "tokenusage", "webhookdelivery", "webhooktry", "worker",
    }
)  # fmt: skip
"""Models of which no group has all permissions: workers write their rows, or users have those of their own."""


def read_permissions(group: Any) -> set[str]:
    """What a group may do, as ``app.action_model``."""
    rows = group.permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


@pytest.mark.django_db
class TestGroups:
    def test_every_permission_is_given_to_a_group_or_of_a_model_that_is_named_here(self) -> None:
        rows = Permission.objects.filter(content_type__app_label__in=["flows", "runs", "auth"])
        existing = {f"{row.content_type.app_label}.{row.codename}" for row in rows.select_related("content_type")}
        given = frozenset().union(*ACCESS_GROUPS.values())
        assert given <= existing
        left = {name for name in existing - given if not name.startswith("auth.")}
        assert {name.rpartition("_")[2] for name in left} == UNGIVEN_MODELS

    def test_each_group_may_do_more_than_those_before_it_and_no_user_deletes_history(self) -> None:
        assert all(earlier < later for earlier, later in pairwise(ACCESS_GROUPS.values()))
        for name, permissions in ACCESS_GROUPS.items():
            deleted = {one for one in permissions if one.startswith("runs.delete_")}
            assert deleted <= {"runs.delete_ratelimit", "runs.delete_webhookendpoint"}
            assert any(one.startswith("auth.") for one in permissions) == (name == "Administrator")

    def test_making_them_again_changes_nothing_and_keeps_what_a_user_added(self) -> None:
        for _ in range(2):
            create_groups(apps=apps, using="default")
            for name, permissions in ACCESS_GROUPS.items():
                assert read_permissions(Group.objects.get(name=name)) >= permissions
            viewer = Group.objects.get(name="Viewer")
            viewer.permissions.add(Permission.objects.get(codename="view_ratelimit"))
            viewer.user_set.add(User.objects.get_or_create(username="vera")[0])
        assert read_permissions(viewer) == ACCESS_GROUPS["Viewer"] | {"runs.view_ratelimit"}
        assert (Group.objects.filter(name__in=ACCESS_GROUPS).count(), viewer.user_set.count()) == (4, 1)

    def test_a_later_release_gives_what_it_brings_and_not_what_was_taken_away(self) -> None:
        create_groups(apps=apps, using="default")
        viewer = Group.objects.get(name="Viewer")
        viewer.permissions.remove(*Permission.objects.filter(codename__in=["view_worker", "view_issue"]))
        create_groups(apps=apps, using="default", permissions=["runs.view_issue", "runs.view_ratelimit"])
        assert read_permissions(viewer) == ACCESS_GROUPS["Viewer"] - {"runs.view_worker"}


def test_a_new_database_gets_all_groups_and_an_older_one_is_refused_with_one_sentence(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shutil.copy(share_sqlite_template(tmp_path_factory), tmp_path / "toolflow.sqlite3")
    with closing(sqlite3.connect(tmp_path / "toolflow.sqlite3")) as database, database:
        rows = database.execute(
            "SELECT g.name, c.app_label || '.' || p.codename FROM auth_group g "
            "JOIN auth_group_permissions gp ON gp.group_id = g.id "
            "JOIN auth_permission p ON p.id = gp.permission_id "
            "JOIN django_content_type c ON c.id = p.content_type_id"
        ).fetchall()
        assert {group: {name for own, name in rows if own == group} for group, _ in rows} == ACCESS_GROUPS
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('flows', '0002_limits', '2026-11-21')"
        )
    for command in (("migrate",), *([("up", "--port", "0"), ("run_worker",)] if IS_LONG else [])):
        ended = start_command(*command, data_dir=tmp_path, TOOLFLOW_SIMULATED_MODEL="1")
        assert ended.returncode == 1, command
        assert "Traceback" not in ended.stdout + ended.stderr
        (sentence,) = ended.stderr.splitlines()
        assert "flows.0002_limits" in sentence and "move it aside" in sentence


@pytest.mark.sql
@pytest.mark.django_db
def test_a_new_database_has_schedules_of_functions_that_there_are() -> None:
    schedules = {name: import_string(func) for name, func in Schedule.objects.values_list("name", "func")}
    assert {"toolflow sweep", "toolflow bulk actions", "toolflow webhooks", "toolflow retention"} <= schedules.keys()


def find_ids(problems: Iterable[Any]) -> list[str]:
    return [problem.id for problem in problems]


def test_a_short_lease_is_a_warning(settings: Any) -> None:
    assert run_checks(tags=[TAG]) == []
    settings.TOOLFLOW_LEASE = 5
    assert find_ids(run_checks(tags=[TAG])) == ["runs.W001"]


@pytest.mark.parametrize(
    ("arguments", "environment", "ids"),
    [
        # Of a database that is not set up yet, too.
        pytest.param(
            *(["--database", "default"], {"TOOLFLOW_CALL_TIMEOUT": "7200", "TOOLFLOW_PLUGIN_TIMEOUT": "900"}, []),
            marks=pytest.mark.nightly,
        ),
        ([], {"DATABASE_URL": f"{POSTGRES}?pool=true"}, ["runs.E006"]),
        ([], {"TOOLFLOW_SEVERAL_HOSTS": "true"}, ["runs.E007", "runs.E009"]),
        pytest.param(
            [],
            {"TOOLFLOW_SEVERAL_HOSTS": "true", "TOOLFLOW_SECRET_KEY": "0123456789" * 5, "DATABASE_URL": POSTGRES},
            [],
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_the_command_refuses_what_environments_set(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], ids: list[str]
) -> None:
    done = start_command("check", *arguments, data_dir=tmp_path, **environment)
    assert done.returncode == (1 if ids else 0)
    assert [id for id in ("runs.E006", "runs.E007", "runs.E009") if id in done.stderr] == ids
    assert ids or not done.stderr


@pytest.mark.django_db
def test_workers_of_several_hosts_on_one_sqlite_file_are_a_warning() -> None:
    def has_warning() -> bool:
        return "runs.W003" in find_ids(run_checks(tags=[Tags.database], databases=["default"]))

    make_worker(host="alpha")
    make_worker(host="beta", heartbeat_at=in_future(-2 * SILENCE))
    assert not has_warning()
    make_worker(host="gamma")
    assert has_warning() == (connection.vendor == "sqlite")
