"""Queued runs that have used tokens are found without reading a whole backlog."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0018_original_input")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("attempt_count__gt", 0), ("status", "queued")),
                fields=["id"],
                name="run_queued_begun",
            ),
        ),
    ]
