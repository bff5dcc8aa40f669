"""Processes of version 0.1.0, which know nothing of webhooks, may add flows."""

from django.db import migrations, models

import flows.webhook_address


class Migration(migrations.Migration):
    dependencies = [("flows", "0007_keep_for_ever")]

    operations = [
        migrations.AlterField(
            model_name="flow",
            name="webhook_url",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                max_length=2000,
                validators=[flows.webhook_address.validate_address],
            ),
        ),
    ]
