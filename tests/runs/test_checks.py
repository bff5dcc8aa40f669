"""What ``manage.py check`` refuses: settings under which work is lost, paid for twice or left lying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, Error, Tags, registry, run_checks
from django.db import connection

from runs.checks import TAG
from runs.models.run import in_future
from runs.models.worker import SILENCE
from tests.runs.builders import make_worker
from tests.site.test_settings import start_command


def find_problems() -> dict[str, CheckMessage]:
    """What our checks find, by id."""
    return {str(problem.id): problem for problem in run_checks(tags=[TAG])}


def test_the_settings_as_they_come_have_no_problem() -> None:
    assert find_problems() == {}


@pytest.mark.parametrize(
    ("changes", "id", "words"),
    [
        ({"timeout": 600, "retry": 600}, "runs.E001", "“timeout” (600) must be less than “retry” (600)"),
        ({"timeout": None}, "runs.E001", "“timeout” (None)"),
        ({"ack_failures": False}, "runs.E003", "“ack_failures” must be True"),
        ({"max_attempts": 0}, "runs.E003", "“max_attempts” 1"),
        ({"queue_limit": 4}, "runs.E004", "“queue_limit” and “bulk” must be 1"),
        ({"bulk": 10}, "runs.E004", "“queue_limit” and “bulk” must be 1"),
    ],
)
def test_settings_of_the_queue_that_lose_work_are_refused(
    settings: Any, changes: dict[str, Any], id: str, words: str
) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, **changes}
    problem = find_problems()[id]
    assert isinstance(problem, Error)
    assert words in problem.msg
    assert problem.hint


def test_a_lease_that_is_too_short_for_a_busy_worker_is_a_warning(settings: Any) -> None:
    settings.TOOLFLOW_LEASE = 5
    problem = find_problems()["runs.W001"]
    assert "TOOLFLOW_LEASE is 5 seconds; less than 10 is for tests." in problem.msg
    assert problem.hint


def test_calls_may_take_as_long_as_the_operator_allows(tmp_path: Path) -> None:
    done = start_command("check", data_dir=tmp_path, TOOLFLOW_CALL_TIMEOUT="7200", TOOLFLOW_PLUGIN_TIMEOUT="900")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_connection_pool_is_refused_since_workers_fork(tmp_path: Path) -> None:
    url = "postgres://me:secret@127.0.0.1:1/toolflow?pool=true"
    done = start_command("check", data_dir=tmp_path, DATABASE_URL=url)
    assert done.returncode == 1
    assert "(runs.E006) The database has a connection pool" in done.stderr


def test_several_hosts_on_sqlite_are_refused_and_so_is_a_secret_key_that_only_one_of_them_has(tmp_path: Path) -> None:
    done = start_command("check", data_dir=tmp_path, TOOLFLOW_SEVERAL_HOSTS="true")
    assert done.returncode == 1
    assert "(runs.E007) TOOLFLOW_SEVERAL_HOSTS is set, but the database is SQLite." in done.stderr
    assert "(runs.E009) TOOLFLOW_SEVERAL_HOSTS is set, but the secret key" in done.stderr


def test_several_hosts_on_postgresql_with_one_secret_key_are_well(tmp_path: Path) -> None:
    done = start_command(
        "check",
        data_dir=tmp_path,
        TOOLFLOW_SEVERAL_HOSTS="true",
        TOOLFLOW_SECRET_KEY="0123456789" * 5,
        DATABASE_URL="postgres://me:secret@127.0.0.1:1/toolflow",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_sqlite_must_take_its_write_lock_at_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setitem(settings.DATABASES["default"], "OPTIONS", {"timeout": 20})
    assert isinstance(find_problems()["runs.E008"], Error)


@pytest.mark.django_db
class TestWorkersOfSeveralHosts:
    @staticmethod
    def find() -> list[str]:
        found = registry.run_checks(tags=[Tags.database], databases=["default"])
        return [problem.msg for problem in found if problem.id == "runs.W003"]

    @pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL serves any number of hosts")
    def test_on_one_sqlite_file_they_are_remarked_upon(self) -> None:
        make_worker(host="alpha")
        assert self.find() == []
        make_worker(host="beta", heartbeat_at=in_future(-2 * SILENCE))
        assert self.find() == []
        make_worker(host="gamma")
        assert self.find() == ["Workers of several hosts use one SQLite database: alpha, gamma."]

    @pytest.mark.skipif(connection.vendor == "sqlite", reason="is about PostgreSQL")
    def test_on_postgresql_they_are_as_it_should_be(self) -> None:
        make_worker(host="alpha")
        make_worker(host="beta")
        assert self.find() == []


def test_a_database_that_is_not_set_up_yet_is_no_problem(tmp_path: Path) -> None:
    done = start_command("check", "--database", "default", data_dir=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
