"""Find recent failures by one index; a table that SQLite made anew gets its trigger back."""

from __future__ import annotations

from typing import ClassVar

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def restore_trigger(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Empty the index of words with the last run, as before SQLite made the table of runs anew for new columns."""
    if editor.connection.vendor == "sqlite":
        editor.execute("DROP TRIGGER IF EXISTS runs_run_all_deleted")
        editor.execute(
            """CREATE TRIGGER runs_run_all_deleted AFTER DELETE ON runs_run WHEN NOT EXISTS (SELECT 1 FROM runs_run) BEGIN
                INSERT INTO runs_searchindex (runs_searchindex) VALUES ('delete-all'); END"""
        )


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runs", "0009_backtests")]

    operations: ClassVar = [
        migrations.RemoveIndex(
            model_name="run",
            name="run_failed_lately",
        ),
        migrations.RemoveIndex(
            model_name="run",
            name="run_errored_lately",
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False)),
                fields=["status", "-ended_at"],
                name="run_by_status_at_end",
            ),
        ),
        migrations.RunPython(restore_trigger, migrations.RunPython.noop),
    ]
