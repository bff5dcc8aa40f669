from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0012_run_list"),
    ]

    operations = []
