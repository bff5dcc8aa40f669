"""What runs work on whose input is kept redacted."""

import django.db.models.deletion
from django.db import migrations, models

import flows.json_field


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0017_retention"),
        ("flows", "0006_redaction"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="is_input_redacted",
            field=models.BooleanField(
                db_default=False, default=False, help_text="The input is not the one that the run works on."
            ),
        ),
        migrations.CreateModel(
            name="OriginalInput",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="original_input",
                        serialize=False,
                        to="runs.run",
                    ),
                ),
                ("input", flows.json_field.PackedJSONField()),
            ],
        ),
    ]
