"""Bulk actions and exports, and the queue's schedule that goes on with bulk actions whose worker died."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "toolflow bulk actions"


def add_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    schedule = apps.get_model("django_q", "Schedule")
    schedule.objects.get_or_create(
        name=NAME,
        defaults={"func": "runs.bulk_actions.tasks.go_on_with_all", "schedule_type": "I", "minutes": 1, "repeats": -1},
    )


def remove_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("django_q", "Schedule").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0012_run_list"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BulkAction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "token",
                    models.UUIDField(
                        help_text="Of the form that asked for it: sent twice, it is done once.", unique=True
                    ),
                ),
                ("kind", models.CharField(choices=[("cancel", "Cancel"), ("run_again", "Run again")], max_length=9)),
                (
                    "expected",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="How many runs it was confirmed for; null if that was not known.",
                        null=True,
                    ),
                ),
                (
                    "run_ids",
                    models.JSONField(blank=True, help_text="The chosen runs; null for all that match.", null=True),
                ),
                (
                    "query",
                    models.TextField(blank=True, default="", help_text="The filters of the list, as in its address."),
                ),
                (
                    "time_zone",
                    models.CharField(
                        default="UTC", help_text="In which days of filters begin and end.", max_length=100
                    ),
                ),
                (
                    "uses_live_version",
                    models.BooleanField(default=False, help_text="Run again under the live version of the flow."),
                ),
                ("most", models.PositiveIntegerField(blank=True, help_text="How many runs it may start.", null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("working", "Working"),
                            ("done", "Done"),
                            ("stopped", "Stopped"),
                            ("failed", "Failed"),
                        ],
                        default="waiting",
                        max_length=7,
                    ),
                ),
                ("problem", models.TextField(blank=True, default="", help_text="Why it failed, in one sentence.")),
                ("newest", models.BigIntegerField(help_text="No run with a higher number is meant.")),
                ("oldest", models.BigIntegerField(help_text="No run with a lower number is meant.")),
                ("position", models.BigIntegerField(help_text="Runs with a lower number are still to be looked at.")),
                (
                    "turn",
                    models.PositiveIntegerField(
                        default=0, help_text="Counts the messages that pass it on; only the last holds."
                    ),
                ),
                (
                    "revision",
                    models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows."),
                ),
                ("done", models.PositiveIntegerField(default=0)),
                ("skipped", models.PositiveIntegerField(default=0, help_text="Runs where there was nothing to do.")),
                ("failed", models.PositiveIntegerField(default=0, help_text="Runs where it was not possible.")),
                (
                    "notes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="The first runs that were skipped or failed: number, which of the two, why.",
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                (
                    "touched_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), help_text="When it last came on."
                    ),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["state", "touched_at"], name="bulk_by_state")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["cancel", "run_again"])), name="bulk_kind_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "working", "done", "stopped", "failed"])),
                        name="bulk_state_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RunExport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "token",
                    models.UUIDField(help_text="By which the page that began it asks how far it is.", unique=True),
                ),
                ("format", models.CharField(max_length=5)),
                ("has_attempts", models.BooleanField(default=False)),
                (
                    "query",
                    models.TextField(blank=True, default="", help_text="The filters of the list, as in its address."),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("working", "Working"),
                            ("done", "Done"),
                            ("stopped", "Stopped"),
                            ("failed", "Failed"),
                        ],
                        default="working",
                        max_length=7,
                    ),
                ),
                ("newest", models.BigIntegerField(help_text="The number of the first run that there was to write.")),
                ("oldest", models.BigIntegerField(help_text="The number of the last one.")),
                ("position", models.BigIntegerField(help_text="Runs from this number upwards are looked at.")),
                ("written", models.PositiveIntegerField(default=0, help_text="Runs that the file holds.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "touched_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), help_text="When it last came on."
                    ),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "working", "done", "stopped", "failed"])),
                        name="export_state_known",
                    )
                ],
            },
        ),
        migrations.RunPython(add_schedule, remove_schedule),
    ]
