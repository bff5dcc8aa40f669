from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("flows", "0004_one_document")]

    operations = [
        migrations.AddField(
            model_name="flow",
            name="deleted_number",
            field=models.PositiveIntegerField(db_default=0, default=0, editable=False),
        ),
    ]
