"""Refusing a database of an earlier ToolFlow: there is no way to update one."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

OWN_APPS = ("flows", "runs")


def refuse_older_database(*, using: str = "default", **kwargs: Any) -> None:
    """Raise ``CommandError`` if the database has migrations of ToolFlow that this one does not have.

    A receiver of ``pre_migrate``. The database's own errors are raised.
    """
    loader = MigrationLoader(connections[using])
    unknown = sorted(key for key in loader.applied_migrations or () if key not in loader.disk_migrations)
    for app, name in unknown:
        if app in OWN_APPS:
            raise CommandError(
                f"The database was made by another version of ToolFlow ({app}.{name}) and can't be updated: "
                "move it aside (or set another DATABASE_URL) to begin with a new one."
            )
