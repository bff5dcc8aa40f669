"""A throwaway installation of ToolFlow with its worker, as one more contender."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from benchmarks.contender import Contender
from benchmarks.figures import say

MOST_TRIES = 30
"""Seconds that the server’s own work in a database is waited for."""


def start_installation(
    name: str,
    *,
    base_url: str,
    folder: Path,
    database_url: str = "",
    redis_url: str = "",
    in_flight: int = 32,
) -> Contender:
    """Set up an installation in ``folder`` and start its worker; SQLite and no Redis by default."""
    data = folder / name.replace(" ", "-")
    data.mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"],
        "TOOLFLOW_ENV_FILE": os.devnull,
        "TOOLFLOW_DATA_DIR": str(data),
        "TOOLFLOW_RUNS_IN_FLIGHT": str(in_flight),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": base_url,
        "DATABASE_URL": database_url,
        "TOOLFLOW_REDIS_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
    }
    command = [sys.executable, "-m", "benchmarks.installed"]
    return Contender(name, command, log=data / "log.txt", environment=environment)


@contextmanager
def creating_postgres_database(server_url: str, name: str) -> Iterator[str]:
    """The address of a new database on that server, dropped afterwards."""
    name = f"{name}_{os.getpid()}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # a name of our own
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            _drop_database(connection, name)


def _drop_database(connection: psycopg.Connection, name: str) -> None:
    """Drop it, also while processes of ours use it; only autovacuum, which belongs to the server, is waited for."""
    for _ in range(MOST_TRIES):
        try:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        except psycopg.errors.InsufficientPrivilege:
            time.sleep(1)
        else:
            return
    say(f"The database {name} is in use by the server itself; it stays.")


@contextmanager
def borrowing_redis_database(server_url: str) -> Iterator[str]:
    """The address of the last database of that Redis, emptied before and after."""
    url = urlunsplit(urlsplit(server_url)._replace(path="/15"))
    with redis.from_url(url) as client:
        client.flushdb()
        try:
            yield url
        finally:
            client.flushdb()
