"""Databases and brokers for installations under test: each of them for one test alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql

from tests.faults.host import ROOT

MIGRATION_PATIENCE = 120.0
"""Seconds."""


@dataclass(frozen=True)
class Backend:
    """Where an installation keeps its rows and its messages; without Redis the database holds both."""

    database_url: str
    redis_url: str = ""

    @property
    def is_sqlite(self) -> bool:
        return self.database_url.startswith("sqlite")


def migrate(database_url: str, folder: Path) -> None:
    """Make the tables of an empty database."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLOW_", "OPENAI_"))},
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
        "TOOLFLOW_DATA_DIR": str(folder),
        "TOOLFLOW_ENV_FILE": os.devnull,
        "DATABASE_URL": database_url,
    }
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=MIGRATION_PATIENCE, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"The database could not be migrated:\n{done.stdout}{done.stderr}")


def make_sqlite_template(folder: Path) -> Path:
    """A database file with empty tables, to be copied."""
    path = folder / "template.sqlite3"
    migrate(f"sqlite:///{path}", folder)
    # Everything that is still in the log beside it belongs into the copies, too.
    assert not path.with_name(f"{path.name}-wal").exists()
    return path


def copy_sqlite(template: Path, folder: Path) -> Backend:
    """A new database in ``folder``."""
    path = folder / "toolflow.sqlite3"
    shutil.copyfile(template, path)
    return Backend(f"sqlite:///{path}")


@contextmanager
def hold_database(server_url: str, *, template: str = "template0") -> Iterator[str]:
    """A new database on that server; gives its address and drops it at the end."""
    name = f"faults_{uuid.uuid4().hex[:16]}"
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


def choose_redis_database(server_url: str) -> str:
    """A database of that Redis server for this process of the tests alone, emptied. The last eight are taken."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    number = 8 + int(worker.removeprefix("gw")) % 8
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{number}"))
    with redis.from_url(url) as client:
        client.flushdb()
    return url
