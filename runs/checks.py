"""System checks: settings under which work would be lost, paid for twice or left lying are refused before they do harm.

``manage.py check`` runs them, and so do most other commands; those that ask the database run with
``manage.py check --database default`` and with ``manage.py migrate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connections

from runs.models import Worker

TAG = "toolflow"

SHORTEST_LEASE = 10
"""Seconds. A busy process or a slow disk may keep a worker from its heartbeat for a few."""

_SQLITE = "django.db.backends.sqlite3"


def register_checks() -> None:
    """Make Django run the checks of this module."""
    for check in (check_queue, check_lease, check_database, check_hosts):
        register(check, TAG)
    register(check_worker_hosts, Tags.database)


def check_queue(**kwargs: Any) -> list[CheckMessage]:
    """The queue's settings, with django-q2's own defaults where one is missing."""
    queue = settings.Q_CLUSTER
    timeout, retry = queue.get("timeout"), queue.get("retry", 60)
    found: list[CheckMessage] = []
    if not timeout or timeout >= retry:
        found.append(
            Error(
                f"Q_CLUSTER: “timeout” ({timeout}) must be less than “retry” ({retry}).",
                hint="A task that is longer than “retry” is started a second time while the first one runs.",
                id="runs.E001",
            )
        )
    if queue.get("ack_failures") is not True or queue.get("max_attempts") != 1:
        found.append(
            Error(
                "Q_CLUSTER: “ack_failures” must be True and “max_attempts” 1.",
                hint="Otherwise a message whose task fails is delivered again for ever. Runs don’t need that: "
                "the sweep finds them.",
                id="runs.E003",
            )
        )
    if queue.get("queue_limit") != 1 or queue.get("bulk", 1) != 1:
        found.append(
            Error(
                "Q_CLUSTER: “queue_limit” and “bulk” must be 1.",
                hint="Messages that were fetched ahead wait behind long tasks, and are lost with a process that dies.",
                id="runs.E004",
            )
        )
    return found


def check_lease(**kwargs: Any) -> list[CheckMessage]:
    """Whether a lease is long enough for a worker that is held up for a moment."""
    lease = settings.TOOLFLOW_LEASE
    found: list[CheckMessage] = []
    if lease < SHORTEST_LEASE:
        found.append(
            Warning(
                f"TOOLFLOW_LEASE is {lease} seconds; less than {SHORTEST_LEASE} is for tests.",
                hint="A worker that is held up for so long loses its runs to another one, and the calls that were "
                "under way are made and paid for again.",
                id="runs.W001",
            )
        )
    return found


def check_database(**kwargs: Any) -> list[CheckMessage]:
    """Options of the database that don't go together with forking workers and many writers."""
    entry = settings.DATABASES["default"]
    options = entry.get("OPTIONS", {})
    found: list[CheckMessage] = []
    if options.get("pool"):
        found.append(
            Error(
                "The database has a connection pool (OPTIONS “pool”).",
                hint="Worker processes are forked, and a pool does not survive that. Take “pool” out of DATABASE_URL; "
                "connections are kept open all the same.",
                id="runs.E006",
            )
        )
    if entry["ENGINE"] == _SQLITE and options.get("transaction_mode") != "IMMEDIATE":
        found.append(
            Error(
                "SQLite must begin its transactions with “transaction_mode”: “IMMEDIATE”.",
                hint="Otherwise a transaction that reads first fails at once when another process writes meanwhile, "
                "however long “timeout” is.",
                id="runs.E008",
            )
        )
    return found


def check_hosts(**kwargs: Any) -> list[CheckMessage]:
    """What several hosts must share."""
    if not settings.TOOLFLOW_SEVERAL_HOSTS:
        return []
    found: list[CheckMessage] = []
    if settings.DATABASES["default"]["ENGINE"] == _SQLITE:
        found.append(
            Error(
                "TOOLFLOW_SEVERAL_HOSTS is set, but the database is SQLite.",
                hint="SQLite’s locks don’t reach beyond one host: files on a network disk get damaged, and separate "
                "files know nothing of each other. Set DATABASE_URL to a PostgreSQL database.",
                id="runs.E007",
            )
        )
    if _has_own_secret_key():
        found.append(
            Error(
                "TOOLFLOW_SEVERAL_HOSTS is set, but the secret key is one that this host made for itself.",
                hint="Sessions and queue messages of one host mean nothing to another. Set TOOLFLOW_SECRET_KEY to the "
                "same value on all of them.",
                id="runs.E009",
            )
        )
    return found


def check_worker_hosts(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Whether workers of several hosts are at work on one SQLite file."""
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
            hint="If these are containers on one machine, all is well. On a network disk SQLite’s locks fail and the "
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
