"""The audit log's own name for its entries; bulk actions with the numbers of their runs."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.utils import timezone


def convert_bulk_actions(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Stop those that are unfinished: where they would go on is not known by the new columns."""
    for action in apps.get_model("runs", "BulkAction")._default_manager.using(editor.connection.alias):
        if action.state in ("waiting", "working"):
            action.state, action.ended_at = "stopped", timezone.now()
        behind = action.done + action.skipped + action.failed
        action.is_chosen = action.run_ids is not None
        action.run_ids = action.run_ids or []
        action.run_count = len(action.run_ids) or behind
        action.position = min(behind, action.run_count)
        action.save()
    schedules = apps.get_model("django_q", "Schedule")._default_manager.using(editor.connection.alias)
    schedules.filter(name="toolflow bulk actions").update(func="runs.bulk_actions.work.resume_all")


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("runs", "0005_webhook_endpoints"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        # Its triggers go with the table.
        migrations.RenameModel("TrailEntry", "AuditEntry"),
        migrations.AlterModelOptions(
            name="auditentry",
            options={
                "default_permissions": (),
                "ordering": ["-at", "-pk"],
                "permissions": [("view_trailentry", "Can view trail entry")],
                "verbose_name": "audit log entry",
                "verbose_name_plural": "audit log",
            },
        ),
        migrations.AlterField(
            "auditentry",
            "actor",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RemoveIndex("bulkaction", "bulk_by_state"),
        *(
            migrations.RemoveField("bulkaction", name)
            for name in (
                "expected",
                "newest",
                "newest_at",
                "oldest",
                "oldest_at",
                "position_at",
                "time_zone",
                "turn",
            )
        ),
        migrations.RenameField("bulkaction", "touched_at", "heartbeat_at"),
        migrations.AddField(
            "bulkaction", "run_count", models.PositiveIntegerField(default=0, help_text="How many these are.")
        ),
        migrations.AddField(
            "bulkaction",
            "is_chosen",
            models.BooleanField(default=False, help_text="These were chosen one by one; else filters found them."),
        ),
        migrations.RunPython(convert_bulk_actions, migrations.RunPython.noop),
        migrations.AlterField(
            "bulkaction",
            "run_ids",
            models.JSONField(blank=True, default=list, help_text="Its runs, the newest first."),
        ),
        migrations.AlterField(
            "bulkaction",
            "position",
            models.PositiveIntegerField(default=0, help_text="How many of its runs are behind."),
        ),
        migrations.AddIndex("bulkaction", models.Index(fields=["state", "heartbeat_at"], name="bulk_by_state")),
    ]
