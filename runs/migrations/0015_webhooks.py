"""What is told to the outside about runs that have ended, and the queue's schedule that looks for what is due."""

import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import runs.models.webhook

NAME = "toolflow webhooks"


def add_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    schedule = apps.get_model("django_q", "Schedule")
    schedule.objects.get_or_create(
        name=NAME,
        defaults={"func": "runs.webhooks.tasks.send_due", "schedule_type": "I", "minutes": 1, "repeats": -1},
    )


def remove_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("django_q", "Schedule").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0014_api"),
        ("flows", "0004_webhook_url"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "message_id",
                    models.CharField(default=runs.models.webhook.make_message_id, max_length=50, unique=True),
                ),
                (
                    "event",
                    models.CharField(
                        choices=[
                            ("run.succeeded", "Run succeeded"),
                            ("run.failed", "Run failed"),
                            ("run.errored", "Run errored"),
                            ("run.cancelled", "Run cancelled"),
                        ],
                        max_length=20,
                    ),
                ),
                ("url", models.TextField()),
                (
                    "host",
                    models.CharField(help_text="Of the address: few are sent to one host at a time.", max_length=255),
                ),
                (
                    "body",
                    models.TextField(
                        blank=True, default="", help_text="What is sent, as it was first; empty before that."
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("delivered", "Delivered"), ("failed", "Not delivered")],
                        default="waiting",
                        max_length=9,
                    ),
                ),
                ("try_count", models.PositiveIntegerField(default=0)),
                (
                    "tries_before",
                    models.PositiveIntegerField(default=0, help_text="Tries from before somebody asked for it anew."),
                ),
                (
                    "last_status",
                    models.PositiveSmallIntegerField(
                        blank=True, help_text="HTTP status of the last answer.", null=True
                    ),
                ),
                (
                    "next_try_at",
                    models.DateTimeField(blank=True, db_default=django.db.models.functions.datetime.Now(), null=True),
                ),
                ("sending_until", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="webhook_deliveries", to="runs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="WebhookTry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("signature", models.TextField(blank=True, default="", help_text="The header of that name.")),
                (
                    "status",
                    models.PositiveSmallIntegerField(blank=True, help_text="HTTP status of the answer.", null=True),
                ),
                (
                    "problem",
                    models.TextField(blank=True, default="", help_text="Why it did not succeed, in one sentence."),
                ),
                ("response", models.TextField(blank=True, default="", help_text="How the body of the answer begins.")),
                (
                    "delivery",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tries", to="runs.webhookdelivery"
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
            },
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(condition=models.Q(("state", "waiting")), fields=["next_try_at"], name="webhook_due"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["state", "-id"], name="webhook_by_state"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.UniqueConstraint(fields=("run", "url"), name="webhook_once"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("event__in", ["run.succeeded", "run.failed", "run.errored", "run.cancelled"])),
                name="webhook_event_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["waiting", "delivered", "failed"])), name="webhook_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="webhooktry",
            constraint=models.UniqueConstraint(fields=("delivery", "number"), name="webhook_try_once"),
        ),
        migrations.RunPython(add_schedule, remove_schedule),
    ]
