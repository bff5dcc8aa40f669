"""How the database, the broker and the caches are reached, and how long a silent server is waited for.

An address that is not valid raises ``ImproperlyConfigured``, in a sentence that never holds what may be a password.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from environ import Env

_POSTGRES_OPTIONS = {
    # Seconds, and milliseconds for the one that counts unanswered data. Without them a host that vanished is waited
    # for a quarter of an hour, and what it locked stays locked for two.
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    # The same for the server's end, and a bound on the locks of a process that is frozen in a transaction. To compile a
    # query takes longer than any of ours runs.
    "options": "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 "
    "-c tcp_user_timeout=25000 -c idle_in_transaction_session_timeout=30000 -c jit=off",
}
_REDIS_OPTIONS = {
    # Seconds. To start a run must not take long with a broker that is away.
    "socket_connect_timeout": 5,
    "socket_timeout": 10,
    "socket_keepalive": True,
    "health_check_interval": 30,
    # Retried once, for a connection that was closed while idle. The client's own policy is to try for several seconds.
    "retry": None,
    "retry_on_error": [OSError],
}
_MEMORY = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}


def build_database(name: str, text: str, *, sqlite_path: Path, base: Path) -> dict[str, Any]:
    """The entry of ``DATABASES`` for an address, the value of variable ``name``; without one SQLite in ``sqlite_path``.

    A relative path is taken from ``base``.
    """
    try:
        entry: dict[str, Any] = Env.db_url_config(text) if text else {"NAME": str(sqlite_path)}
    except ValueError:
        entry = {}
    scheme = text.partition(":")[0]
    is_postgres = scheme in {"postgres", "postgresql"}
    # SQLite in memory would be another database in every process.
    is_sqlite = scheme in {"", "sqlite"} and not entry.get("HOST") and entry.get("NAME") != ":memory:"
    if not entry.get("NAME") or not (is_postgres or is_sqlite):
        raise ImproperlyConfigured(
            f"{name} must be sqlite:///path/to/file (four slashes before an absolute path) "
            "or postgres://user:password@host:5432/database."
        )
    if is_postgres:
        options = {**_POSTGRES_OPTIONS, **entry.get("OPTIONS", {})}
        return {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True, **entry, "OPTIONS": options}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(base / entry["NAME"]),
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # A deferred transaction that reads first and writes then fails at once when another process has written
            # in between; an immediate one waits.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "factory": PrivateConnection,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        },
    }


class PrivateConnection(sqlite3.Connection):
    """A connection to SQLite that creates a missing database readable by its owner only.

    SQLite gives the files beside it, which end in -wal and -shm, the same mode.
    """

    def __init__(self, database: str, **options: Any) -> None:
        # A folder that can't be written to is for SQLite to report.
        with suppress(OSError):
            os.close(os.open(database, os.O_CREAT | os.O_EXCL, 0o600))
        super().__init__(database, **options)


def build_broker(name: str, text: str) -> dict[str, Any]:
    """The part of ``Q_CLUSTER`` that says where messages are kept: the Redis at the address, else the database."""
    if not text:
        return {"orm": "default"}
    parts = urlsplit(text)
    database = parts.path.strip("/") or "0"
    try:
        port = parts.port or 6379
    except ValueError:
        port = 0
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname or not port or not database.isdigit():
        raise ImproperlyConfigured(f"{name} must be redis://user:password@host:6379/0, or rediss:// with TLS.")
    if find_spec("redis") is None:
        raise ImproperlyConfigured(f"{name} needs the package for Redis: pip install -r requirements/scale.txt")
    # Taken apart so that the password is under a name that Django hides on its debug pages.
    return {
        "redis": {
            "host": parts.hostname,
            "port": port,
            "db": int(database),
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "ssl": parts.scheme == "rediss",
            **_REDIS_OPTIONS,
        }
    }


def build_caches(redis: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The setting ``CACHES``: one of each process, and “throttling”, which web servers share through ``redis``.

    ``redis`` is the entry of ``build_broker``. Every request to the API waits for it, so that its timeouts are short.
    """
    shared: dict[str, Any] = {**_MEMORY, "LOCATION": "throttling"}
    if redis:
        options = {name: value for name, value in redis.items() if name != "ssl"}
        shared = {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "KEY_PREFIX": "toolflow",
            "LOCATION": "rediss://" if redis["ssl"] else "redis://",
            "OPTIONS": {**options, "socket_connect_timeout": 0.5, "socket_timeout": 0.5},
        }
    return {"default": {**_MEMORY, "LOCATION": "default"}, "throttling": shared}
