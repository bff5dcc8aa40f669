"""The database of a test for processes that it starts, and SQLite files with all tables that are made only once."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection

from tests.warm_python import ROOT, clean_environment, run_python

MIGRATION_PATIENCE = 120.0
"""Seconds."""


def name_test_database() -> str:
    """The address of the database that this test has, as ``DATABASE_URL`` takes it."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    user, password = quote(values["USER"]), quote(values["PASSWORD"])
    return f"postgres://{user}:{password}@{values['HOST']}:{values['PORT']}/{values['NAME']}"


def migrate(database_url: str, folder: Path) -> None:
    """Make the tables of an empty database; ``folder`` is for what else the command leaves behind."""
    environment = {
        **clean_environment(),
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
        "TOOLFLOW_DATA_DIR": str(folder),
        "TOOLFLOW_ENV_FILE": os.devnull,
        "DATABASE_URL": database_url,
    }
    command = ("manage.py", "migrate", "--verbosity", "0")
    done = run_python(*command, cwd=ROOT, environment=environment, timeout=MIGRATION_PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"The database could not be migrated:\n{done.stdout}{done.stderr}")


def make_sqlite_template(folder: Path) -> Path:
    """A database file with empty tables, to be copied."""
    path = folder / "template.sqlite3"
    migrate(f"sqlite:///{path}", folder)
    # Everything that is still in the log beside it belongs into the copies, too.
    assert not path.with_name(f"{path.name}-wal").exists()
    return path


def share_sqlite_template(factory: pytest.TempPathFactory) -> Path:
    """The same, made once for all processes that share the tests of a session."""
    return make_once("empty-tables.sqlite3", make_sqlite_template, factory)


def make_once(name: str, make: Callable[[Path], Path], factory: pytest.TempPathFactory) -> Path:
    """A file that all processes of a session share: ``make`` makes it, in a folder, where none of them has yet."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shutil.move(make(factory.mktemp("made")), shared)
    return shared
