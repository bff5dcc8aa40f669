from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("flows", "0002_webhook_endpoints")]

    operations = [
        migrations.AddField(
            model_name="auditrule",
            name="for_each",
            field=models.TextField(blank=True, db_default="", default="", max_length=4000),
        ),
    ]
