"""Databases and brokers for installations under test: each of them for one test alone."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql


@dataclass(frozen=True)
class Backend:
    """Where an installation keeps its rows and its messages; without Redis the database holds both."""

    database_url: str
    redis_url: str = ""

    @property
    def is_sqlite(self) -> bool:
        return self.database_url.startswith("sqlite")


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
