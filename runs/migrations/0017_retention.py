"""Which runs have lost their outputs, which days their runs, and the queue's schedule that sees to it."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "toolflow retention"


def add_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    schedule = apps.get_model("django_q", "Schedule")
    schedule.objects.get_or_create(
        name=NAME, defaults={"func": "runs.retention.tasks.purge_due", "schedule_type": "H", "repeats": -1}
    )


def remove_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("django_q", "Schedule").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0016_trail"),
        ("flows", "0005_retention"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="outputs_removed_at",
            field=models.DateTimeField(
                blank=True, help_text="Since when only figures are left of what the run read and wrote.", null=True
            ),
        ),
        migrations.CreateModel(
            name="PurgedDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                ("runs", models.PositiveBigIntegerField()),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="purged_days",
                        to="flows.flow",
                    ),
                ),
            ],
            options={
                "ordering": ["flow", "day"],
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=("flow", "day"), name="purged_day_once")],
            },
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False), ("outputs_removed_at__isnull", True)),
                fields=["flow", "ended_at"],
                name="run_by_end",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("outputs_removed_at__isnull", False)),
                fields=["flow", "ended_at"],
                name="run_by_end_without_outputs",
            ),
        ),
        migrations.RunPython(add_schedule, remove_schedule),
    ]
