"""Remove the tables of features that are cut; one row of daily runs for each model; one table of locks."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def remove_content_types(apps: Any, schema_editor: Any) -> None:
    """Remove the content types of the tables, and with them their permissions."""
    content_types = apps.get_model("contenttypes", "ContentType").objects
    content_types.filter(app_label="runs", model__in=["runexport", "runlevels"]).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("flows", "0010_model_settings_and_audits"),
        ("runs", "0031_call_refused_label"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.CreateModel(
            name="Lock",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("token", models.PositiveBigIntegerField(default=0, help_text="Fencing token of the last lease.")),
                (
                    "held_until",
                    models.DateTimeField(
                        blank=True, help_text="When the lease expires; empty if it is free.", null=True
                    ),
                ),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.DeleteModel(
            name="PurgeTurn",
        ),
        migrations.DeleteModel(
            name="TallyTurn",
        ),
        migrations.AlterModelOptions(
            name="dailyruns",
            options={"ordering": ["flow", "day", "version", "model"], "verbose_name_plural": "daily runs"},
        ),
        migrations.RemoveConstraint(
            model_name="dailyruns",
            name="daily_runs_once",
        ),
        migrations.AddField(
            model_name="dailyruns",
            name="begun",
            field=models.PositiveBigIntegerField(default=0, help_text="First attempts of steps that have an output."),
        ),
        migrations.AddField(
            model_name="dailyruns",
            name="has_several",
            field=models.BooleanField(default=False, help_text="The steps of these runs ask for several models."),
        ),
        migrations.AddField(
            model_name="dailyruns",
            name="model",
            field=models.CharField(
                blank=True,
                default="",
                help_text="As the definition names it; empty for several, and where none is asked.",
                max_length=200,
            ),
        ),
        migrations.AlterField(
            model_name="browsersession",
            name="user",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="browser_sessions",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="dailyruns",
            constraint=models.UniqueConstraint(
                fields=("flow", "day", "version", "is_simulated", "model", "has_several"), name="daily_runs_once"
            ),
        ),
        migrations.DeleteModel(
            name="DailyModels",
        ),
        migrations.DeleteModel(
            name="HourlyRuns",
        ),
        migrations.DeleteModel(
            name="RunExport",
        ),
        migrations.DeleteModel(
            name="RunLevels",
        ),
        migrations.RunPython(remove_content_types, migrations.RunPython.noop),
    ]
