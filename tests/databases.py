"""Databases of tests: made once, and copied for every process that shares the tests of a session."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from tests.processes import ROOT, clean_environment, run_python

MIGRATION_TIMEOUT = 120.0
"""Seconds."""
SQLITE_TEMPLATE = "empty-tables.sqlite3"
POSTGRES_TEMPLATE = "empty-tables.postgres"
"""Files that all processes of a session share. The second one holds the name of a database."""


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
    done = run_python(*command, cwd=ROOT, environment=environment, timeout=MIGRATION_TIMEOUT)
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
    return make_once(SQLITE_TEMPLATE, make_sqlite_template, factory)


@contextmanager
def hold_test_database(factory: pytest.TempPathFactory) -> Iterator[None]:
    """A database with empty tables, to which Django’s own connection leads; at the end it is gone.

    The first process of a session migrates one, the others copy what it made.
    """
    hold = _hold_sqlite if connection.vendor == "sqlite" else _hold_postgres
    with hold(factory):
        yield


@contextmanager
def _hold_sqlite(factory: pytest.TempPathFactory) -> Iterator[None]:
    with ExitStack() as held:
        with lock_shared(SQLITE_TEMPLATE, factory) as template:
            if template.exists():
                name = Path(connection.settings_dict["TEST"]["NAME"])
                shutil.copyfile(template, name)
                held.callback(name.unlink)
                held.enter_context(_lead_to(str(name)))
            else:
                held.enter_context(_migrate_here())
                with closing(sqlite3.connect(template)) as copy:
                    connection.connection.backup(copy)
        yield


@contextmanager
def _hold_postgres(factory: pytest.TempPathFactory) -> Iterator[None]:
    server = name_test_database()
    with ExitStack() as held:
        with lock_shared(POSTGRES_TEMPLATE, factory) as note:
            if note.exists():
                url = held.enter_context(hold_database(server, template=note.read_text()))
                held.enter_context(_lead_to(name_database(url)))
            else:
                name = held.enter_context(_migrate_here())
                # Only a database without connections can be copied.
                connection.close()
                url = held.enter_context(hold_database(server, template=name))
                note.write_text(name_database(url))
                held.callback(_forget_template, factory)
        yield


def _forget_template(factory: pytest.TempPathFactory) -> None:
    with lock_shared(POSTGRES_TEMPLATE, factory) as note:
        note.unlink()


@contextmanager
def _migrate_here() -> Iterator[str]:
    """The name of a new database, migrated by Django’s own commands in this process."""
    real_name = connection.settings_dict["NAME"]
    yield connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    connection.creation.destroy_test_db(real_name, verbosity=0)


@contextmanager
def _lead_to(name: str) -> Iterator[None]:
    real_name = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    yield
    connection.close()
    connection.settings_dict["NAME"] = real_name


@contextmanager
def hold_database(server_url: str, *, template: str = "template0") -> Iterator[str]:
    """A new database on that PostgreSQL server; gives its address and drops it at the end."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            # Only our own: dropped by force, it would have the server's own processes terminated, which we may not.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user",
                [name],
            )
            connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def name_database(url: str) -> str:
    """The database that an address names."""
    return urlsplit(url).path.strip("/")


def empty_tables(_style: object, connection: BaseDatabaseWrapper, **_options: bool) -> list[str]:
    """The statements with which a test that commits leaves empty tables behind, as Django's ``sql_flush``.

    Rows go one by one, since PostgreSQL needs longer to truncate all tables than most tests take; content types and
    permissions stay as the migrations made them.
    """
    # By name: what kills workers for long uses this module without Django’s models.
    kept = {"django_content_type", "auth_permission"}
    names = {*connection.introspection.django_table_names(only_existing=True)} - kept
    statements = [f"DELETE FROM {connection.ops.quote_name(name)}" for name in sorted(names)]  # noqa: S608  # our own
    if connection.vendor == "postgresql":
        # Else a trigger refuses to have entries of the trail deleted.
        statements.insert(0, "SET LOCAL toolflow.purges_trail = 'on'")
    return statements


def make_once(name: str, make: Callable[[Path], Path], factory: pytest.TempPathFactory) -> Path:
    """A file that all processes of a session share: ``make`` makes it, in a folder, where none of them has yet."""
    with lock_shared(name, factory) as shared:
        if not shared.exists():
            shutil.move(make(factory.mktemp("made")), shared)
    return shared


@contextmanager
def lock_shared(name: str, factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a file that all processes of a session share, for one of them at a time."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared
