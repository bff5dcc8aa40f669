"""0 keeps for ever."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("flows", "0006_redaction"),
    ]

    operations = [
        migrations.AlterField(
            model_name="flow",
            name=name,
            field=models.PositiveIntegerField(
                blank=True,
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0),
                    django.core.validators.MaxValueValidator(36500),
                ],
            ),
        )
        for name in ("keep_days", "keep_outputs_days")
    ]
