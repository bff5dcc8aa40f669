"""Tables as earlier releases had them, in the place of the newest ones for the length of a test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

OURS = ("flows", "runs")
Targets = Sequence[tuple[str, str]]


def migrate(targets: Targets) -> Any:
    """Migrate to ``targets``; gives the models as they are then."""
    MigrationExecutor(connection).migrate(list(targets))
    return MigrationExecutor(connection).loader.project_state(list(targets)).apps


def migrate_to_newest() -> None:
    """Do all migrations that are still to be done."""
    migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())


@contextmanager
def hold_older_tables(targets: Targets) -> Iterator[Any]:
    """The models of ``targets`` in a database made up to there, from nothing; afterwards everything is as before.

    Packages that ours depend on have their newest tables.
    """
    others = [node for node in MigrationExecutor(connection).loader.graph.leaf_nodes() if node[0] not in OURS]
    with _hold_empty_database():
        ContentType.objects.clear_cache()
        yield migrate([*targets, *others])
    ContentType.objects.clear_cache()


@contextmanager
def _hold_empty_database() -> Iterator[None]:
    connection.ensure_connection()
    hold = _hold_empty_file if connection.vendor == "sqlite" else _hold_empty_schema
    with hold():
        yield


@contextmanager
def _hold_empty_file() -> Iterator[None]:
    with closing(sqlite3.connect(":memory:")) as saved:
        connection.connection.backup(saved)
        with closing(sqlite3.connect(":memory:")) as nothing:
            nothing.backup(connection.connection)
        yield
        connection.ensure_connection()
        saved.backup(connection.connection)


@contextmanager
def _hold_empty_schema() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("ALTER SCHEMA public RENAME TO newest")
        cursor.execute("CREATE SCHEMA public")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA public CASCADE")
        cursor.execute("ALTER SCHEMA newest RENAME TO public")
