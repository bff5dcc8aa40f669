"""System checks: settings under which work would be lost, paid for twice or never done.

Most commands run them; ``check --database default`` and ``migrate`` also run the one that asks the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connections

from runs.models import Worker

TAG = "toolflow"

MIN_LEASE_SECONDS = 10
"""A busy process or a slow disk may keep a worker from its heartbeat for a few seconds."""


@register(TAG)
def check_lease(**kwargs: Any) -> list[CheckMessage]:
    """Whether a lease outlasts a short delay of its worker."""
    lease = settings.TOOLFLOW_LEASE
    if lease >= MIN_LEASE_SECONDS:
        return []
    return [
        Warning(
            f"TOOLFLOW_LEASE is {lease} seconds; less than {MIN_LEASE_SECONDS} is for tests.",
            hint=(
                "A worker that stalls for longer loses its runs to another worker, and calls in progress are "
                "repeated and billed again."
            ),
            id="runs.W001",
        )
    ]


@register(TAG)
def check_database(**kwargs: Any) -> list[CheckMessage]:
    """Whether forked workers would share a pool of connections."""
    if not settings.DATABASES["default"].get("OPTIONS", {}).get("pool"):
        return []
    return [
        Error(
            "The database has a connection pool (OPTIONS “pool”).",
            hint=(
                "Worker processes are forked, and a pool does not survive a fork. Remove “pool” from "
                "DATABASE_URL; connections are kept open anyway."
            ),
            id="runs.E006",
        )
    ]


@register(TAG)
def check_hosts(**kwargs: Any) -> list[CheckMessage]:
    """What several hosts must share."""
    if not settings.TOOLFLOW_SEVERAL_HOSTS:
        return []
    found: list[CheckMessage] = []
    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
        found.append(
            Error(
                "TOOLFLOW_SEVERAL_HOSTS is set, but the database is SQLite.",
                hint=(
                    "SQLite’s locks don’t reach beyond one host: files on a network disk get damaged, and "
                    "separate files are not synchronised. Set DATABASE_URL to a PostgreSQL database."
                ),
                id="runs.E007",
            )
        )
    if _has_own_secret_key():
        found.append(
            Error(
                "TOOLFLOW_SEVERAL_HOSTS is set, but only this host has the secret key.",
                hint="Other hosts can't read its sessions and queue messages. Set TOOLFLOW_SECRET_KEY to the "
                "same value on all of them.",
                id="runs.E009",
            )
        )
    return found


@register(Tags.database)
def check_worker_hosts(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Whether workers of several hosts use one SQLite file."""
    if "default" not in (databases or ()) or connections["default"].vendor != "sqlite":
        return []
    try:
        hosts = sorted(set(Worker.objects.alive().values_list("host", flat=True)))
    except DatabaseError:
        # A database that is being set up has no workers yet.
        return []
    if len(hosts) < 2:
        return []
    return [
        Warning(
            f"Workers of several hosts use one SQLite database: {', '.join(hosts)}.",
            hint="This is safe for containers on one machine. On a network disk SQLite’s locks fail and the "
            "file gets damaged: use PostgreSQL (DATABASE_URL), and set TOOLFLOW_SEVERAL_HOSTS.",
            id="runs.W003",
        )
    ]


def _has_own_secret_key() -> bool:
    try:
        own = (settings.TOOLFLOW_DATA_DIR / "secret_key").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return False
    return bool(own == settings.SECRET_KEY)
