"""What all commands say where the database can't be used."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from django.conf import settings
from django.db import DatabaseError, OperationalError

from tests.site.test_settings import make_environment, start_command
from toolflow_site import __main__
from toolflow_site.errors import BriefRefusals

ADVICE = "Check DATABASE_URL; a new database wants `manage.py migrate` first. Use --traceback for details.\n"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DatabaseError("file is not a database"), "file is not a database"),
        (OperationalError("Connection refused\n\tIs the server running?"), "Connection refused"),
    ],
)
def test_a_database_that_can_not_be_used_gets_one_sentence_and_a_traceback_if_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: DatabaseError, reason: str
) -> None:
    monkeypatch.setattr(__main__, "act_as_command", mock.Mock())
    monkeypatch.setattr(__main__, "execute_from_command_line", mock.Mock(side_effect=error))
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    with pytest.raises(SystemExit, check=lambda ended: ended.code == 1):
        __main__.main()
    assert capsys.readouterr().err == f"The database can't be used: {reason}. {ADVICE}"
    sys.argv.append("--traceback")
    with pytest.raises(type(error)):
        __main__.main()


@pytest.mark.nightly
def test_a_server_that_is_away_gets_one_sentence_without_the_password(tmp_path: Path) -> None:
    done = start_command("migrate", data_dir=tmp_path, DATABASE_URL="postgres://me:hidden@127.0.0.1:1/toolflow")
    assert (done.returncode, done.stderr.count("\n"), "hidden" in done.stderr) == (1, 1, False)
    assert done.stderr.endswith(f"Connection refused. {ADVICE}")


def test_a_full_disk_or_a_folder_that_can_not_be_written_to_gets_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/missing/toolflow.sqlite3"
    done = start_command("run_worker", data_dir=tmp_path, DATABASE_URL=address)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"The folder {tmp_path}/missing must exist" in done.stderr
    # No file may grow beyond a bound: to SQLite it is the same as a disk without space.
    shell = ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh", sys.executable, "manage.py", "migrate"]
    environment = make_environment(tmp_path, {})
    done = subprocess.run(shell, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"Check the free space of the disk that holds {tmp_path}." in done.stderr


def test_a_pipe_that_its_reader_has_closed_is_no_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "manage.py", "check", "--list-tags"]
    environment = make_environment(tmp_path, {})
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_request_on_a_full_disk_is_one_line_in_the_log_of_the_web_server() -> None:
    kind = (OperationalError, OperationalError("database or disk is full"), None)
    record = logging.LogRecord("django.request", logging.ERROR, "", 0, "Internal Server Error: %s", ("/runs/",), kind)
    BriefRefusals().filter(record)
    assert record.exc_info is None
    assert record.getMessage().startswith("Internal Server Error: /runs/ (database or disk is full) Check the free spa")
