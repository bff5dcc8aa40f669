"""Databases and brokers for installations under test: each of them for one test alone."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis


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


def choose_redis_database(server_url: str) -> str:
    """A database of that Redis server for this process of the tests alone, emptied. The last eight are taken."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    number = 8 + int(worker.removeprefix("gw")) % 8
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{number}"))
    with redis.from_url(url) as client:
        client.flushdb()
    return url
