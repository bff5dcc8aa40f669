"""A database of an earlier ToolFlow is refused with one sentence; a new one gets all that is no model."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string
from django_q.models import Schedule

from runs.access_groups import ACCESS_GROUPS

pytestmark = pytest.mark.sql


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ``manage.py`` on the SQLite database of a folder."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
        "TOOLFLOW_DATA_DIR": str(folder),
        "TOOLFLOW_SIMULATED_MODEL": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "toolflow_site", *command],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_older_database_is_refused_with_one_sentence(tmp_path: Path) -> None:
    assert run(tmp_path, "migrate", "--verbosity", "0").returncode == 0
    with closing(sqlite3.connect(tmp_path / "toolflow.sqlite3")) as database, database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('flows', '0002_limits', '2026-11-21')"
        )
    for command in (("migrate",), ("up", "--port", "0"), ("run_worker",)):
        ended = run(tmp_path, *command)
        assert ended.returncode == 1, command
        assert "Traceback" not in ended.stdout + ended.stderr
        (sentence,) = ended.stderr.splitlines()
        assert "flows.0002_limits" in sentence and "move it aside" in sentence


@pytest.mark.django_db
def test_a_new_database_has_groups_and_schedules() -> None:
    schedules = {name: import_string(func) for name, func in Schedule.objects.values_list("name", "func")}
    assert {"toolflow sweep", "toolflow bulk actions", "toolflow webhooks", "toolflow retention"} <= schedules.keys()
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM auth_group")
        assert {name for (name,) in cursor.fetchall()} >= ACCESS_GROUPS.keys()
