from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_packed_request")]

    operations = [
        migrations.RemoveField(model_name="attempt", name="request"),
        migrations.RenameField(model_name="attempt", old_name="packed_request", new_name="request"),
    ]
