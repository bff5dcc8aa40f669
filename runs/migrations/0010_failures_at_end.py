from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0009_backtests"),
    ]

    operations = [
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
    ]
