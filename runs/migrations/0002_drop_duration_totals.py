from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]

    operations = [
        migrations.RemoveField(model_name="dailyruns", name="duration_total"),
        migrations.RemoveField(model_name="dailyruns", name="timed"),
    ]
