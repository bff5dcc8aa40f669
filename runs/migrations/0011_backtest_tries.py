from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0010_failures_at_end"),
    ]

    operations = [
        migrations.AddField(
            model_name="backtest",
            name="tries",
            field=models.PositiveSmallIntegerField(default=0, help_text="Tasks that began at this position."),
        ),
    ]
