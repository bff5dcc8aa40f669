"""A run knows which one it repeats. Web servers of the release before go on starting runs: the column may be empty."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0026_vacuum_without_truncation")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="again_of",
            field=models.BigIntegerField(
                blank=True, help_text="The number of the run that this one repeats; it may be gone.", null=True
            ),
        ),
    ]
