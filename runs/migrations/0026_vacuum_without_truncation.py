"""Vacuuming what retention has emptied keeps nobody waiting.

PostgreSQL gives the end of a file back to the disk where it is empty after many rows were deleted. Meanwhile nobody can
read or write the table, for as long as the disk takes. The room is used again instead.
"""

from __future__ import annotations

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

TABLES = (
    "runs_run",
    "runs_step",
    "runs_attempt",
    "runs_issue",
    "runs_tokenusage",
    "runs_runfacet",
    "runs_runlevels",
    "runs_originalinput",
    "runs_searchdocument",
    "runs_webhookdelivery",
    "runs_webhooktry",
)


def keep_files(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    # The lock that this takes is in the way of nobody but a vacuum.
    _alter(editor, "SET (vacuum_truncate = false, toast.vacuum_truncate = false)")


def give_files_back(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _alter(editor, "RESET (vacuum_truncate, toast.vacuum_truncate)")


def _alter(editor: BaseDatabaseSchemaEditor, what: str) -> None:
    if editor.connection.vendor == "postgresql":
        for table in TABLES:
            editor.execute(f"ALTER TABLE {table} {what}")


class Migration(migrations.Migration):
    dependencies = [("runs", "0025_hourly_and_model_rollups")]

    operations = [migrations.RunPython(keep_files, give_files_back)]
