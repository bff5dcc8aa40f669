from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0020_kept_trail"),
    ]

    operations = [
        # Words only: nothing of the table changes.
        migrations.AlterField(
            model_name="idempotentrequest",
            name="fingerprint",
            field=models.CharField(
                help_text="HMAC-SHA-256 of method, address and body, with the secret key.", max_length=64
            ),
        ),
    ]
