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
    rules = (
        (
            bool(timeout) and timeout < retry,
            f"“timeout” ({timeout}) must be less than “retry” ({retry}).",
            "A task that takes longer than “retry” is started a second time while the first one runs.",
            "runs.E001",
        ),
        (
            queue.get("ack_failures") is True and queue.get("max_attempts") == 1,
            "“ack_failures” must be True and “max_attempts” 1.",
            "Otherwise the message of a task that fails is delivered again for ever. The sweep finds its runs.",
            "runs.E003",
        ),
        (
            queue.get("queue_limit") == 1 and queue.get("bulk", 1) == 1,
            "“queue_limit” and “bulk” must be 1.",
            "Messages that were fetched ahead wait behind long tasks, and are lost with a process that dies.",
            "runs.E004",
        ),
    )
    return [Error(f"Q_CLUSTER: {rule}", hint=hint, id=code) for holds, rule, hint, code in rules if not holds]


def check_lease(**kwargs: Any) -> list[CheckMessage]:
    """Whether a lease outlasts a short delay of its worker."""
    lease = settings.TOOLFLOW_LEASE
    if lease >= MIN_LEASE_SECONDS:
        return []
    return [
        Warning(
            f"TOOLFLOW_LEASE is {lease} seconds; less than {MIN_LEASE_SECONDS} is for tests.",
            hint="A worker that is held up for longer loses its runs to another one, and calls in flight are made and "
            "paid for again.",
            id="runs.W001",
        )
    ]


def check_database(**kwargs: Any) -> list[CheckMessage]:
    """Options of the database that break forked workers or concurrent writers."""
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
                "TOOLFLOW_SEVERAL_HOSTS is set, but the secret key is one that only this host has.",
                hint="Other hosts can't read its sessions and queue messages. Set TOOLFLOW_SECRET_KEY to the "
                "same value on all of them.",
                id="runs.E009",
            )
        )
    return found


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
