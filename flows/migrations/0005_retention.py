import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("flows", "0004_webhook_url"),
    ]

    operations = [
        migrations.AddField(
            model_name="flow",
            name=name,
            field=models.PositiveIntegerField(
                blank=True,
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(36500),
                ],
            ),
        )
        for name in ("keep_days", "keep_outputs_days")
    ]
