"""Secrets of webhooks that were changed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("flows", "0008_older_websites")]

    operations = [
        migrations.CreateModel(
            name="WebhookSecretChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "signer",
                    models.CharField(help_text="A flow or a user, by kind and key.", max_length=40, unique=True),
                ),
                ("number", models.PositiveIntegerField(help_text="Of the last change, from 1.")),
                ("changed_at", models.DateTimeField()),
            ],
            options={"default_permissions": ()},
        ),
    ]
