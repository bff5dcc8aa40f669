"""Only attempts with an output are tries and retries: the help texts say so."""

from __future__ import annotations

from django.db import migrations, models


def _count(help_text: str) -> models.PositiveBigIntegerField[int, int]:
    return models.PositiveBigIntegerField(default=0, help_text=help_text)


_RETRIES = "Attempts with an output that followed another one of their step."
_FIELDS = (
    ("dailymodels", "begun", "First attempts of steps that have an output."),
    ("dailymodels", "retries", _RETRIES),
    ("dailyruns", "retries", _RETRIES),
    ("dailysteps", "begun", "Runs whose first attempt with an output of this step it was."),
    ("dailysteps", "retries", _RETRIES),
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0029_received_replies")]

    operations = [
        migrations.AlterField(model_name=model, name=name, field=_count(help_text))
        for model, name, help_text in _FIELDS
    ]
