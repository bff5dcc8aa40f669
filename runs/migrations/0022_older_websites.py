"""Processes of version 0.1.0 may start runs; and what was done to things of one kind is found without a look at others."""

from django.db import migrations, models

import flows.json_field


class Migration(migrations.Migration):
    dependencies = [("runs", "0021_fingerprint_words")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="is_tallied",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Statistics and search know of this run; it has ended."
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="labels",
            field=models.JSONField(
                blank=True,
                db_default=[],
                default=list,
                help_text="Short texts that whoever started the run gave it.",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="metadata",
            field=flows.json_field.OrderedJSONField(
                db_default={},
                default=dict,
                help_text="What whoever started the run keeps with it; ToolFlow only hands it on.",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="webhook_url",
            field=models.URLField(
                blank=True,
                db_default="",
                default="",
                help_text="Who is told when the run has ended.",
                max_length=2000,
            ),
        ),
        migrations.AddIndex(
            model_name="trailentry",
            index=models.Index(fields=["object_kind", "-id"], name="trail_by_kind"),
        ),
    ]
