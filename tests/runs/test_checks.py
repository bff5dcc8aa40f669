"""``manage.py check``: settings under which work is lost, paid for twice or never done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Tags, run_checks
from django.db import connection

from runs.checks import TAG
from runs.models.run import in_future
from runs.models.worker import SILENCE
from tests.runs.builders import make_worker
from tests.site.test_settings import start_command

POSTGRES = "postgres://me:secret@127.0.0.1:1/toolflow"


@pytest.mark.parametrize(
    ("changes", "id"),
    [
        ({}, None),
        ({"timeout": 600, "retry": 600}, "runs.E001"),
        ({"timeout": None}, "runs.E001"),
        ({"ack_failures": False}, "runs.E003"),
        ({"max_attempts": 0}, "runs.E003"),
        ({"queue_limit": 4}, "runs.E004"),
        ({"bulk": 10}, "runs.E004"),
    ],
)
def test_settings_of_the_queue_that_lose_work_are_refused(
    settings: Any, changes: dict[str, Any], id: str | None
) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, **changes}
    assert [problem.id for problem in run_checks(tags=[TAG])] == ([id] if id else [])


def test_a_short_lease_and_late_locks_of_sqlite_are_found(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.TOOLFLOW_LEASE = 5
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setitem(settings.DATABASES["default"], "OPTIONS", {"timeout": 20})
    assert {problem.id for problem in run_checks(tags=[TAG])} == {"runs.W001", "runs.E008"}


@pytest.mark.parametrize(
    ("arguments", "environment", "ids"),
    [
        # Of a database that is not set up yet, too.
        (["--database", "default"], {"TOOLFLOW_CALL_TIMEOUT": "7200", "TOOLFLOW_PLUGIN_TIMEOUT": "900"}, []),
        ([], {"DATABASE_URL": f"{POSTGRES}?pool=true"}, ["runs.E006"]),
        ([], {"TOOLFLOW_SEVERAL_HOSTS": "true"}, ["runs.E007", "runs.E009"]),
        (
            [],
            {"TOOLFLOW_SEVERAL_HOSTS": "true", "TOOLFLOW_SECRET_KEY": "0123456789" * 5, "DATABASE_URL": POSTGRES},
            [],
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
    def find() -> bool:
        found = run_checks(tags=[Tags.database], databases=["default"])
        return any(problem.id == "runs.W003" for problem in found)

    make_worker(host="alpha")
    make_worker(host="beta", heartbeat_at=in_future(-2 * SILENCE))
    assert not find()
    make_worker(host="gamma")
    assert find() == (connection.vendor == "sqlite")
