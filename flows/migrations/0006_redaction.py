from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("flows", "0005_retention"),
    ]

    operations = [
        migrations.AddField(
            model_name="flow",
            name="redact",
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
    ]
