"""What failed lately is found by when it failed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0022_older_websites")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(condition=models.Q(status=status), fields=["-ended_at"], name=f"run_{status}_lately"),
        )
        for status in ("failed", "errored")
    ]
