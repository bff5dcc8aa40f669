"""A reply is stored before Python functions judge it. Workers of the release before leave the column empty."""

from __future__ import annotations

from django.db import migrations

import flows.json_field


class Migration(migrations.Migration):
    dependencies = [("runs", "0028_number_breaks")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="received",
            field=flows.json_field.PackedJSONField(
                blank=True,
                editable=False,
                help_text="The arguments that came back, not redacted, from when they are stored until they are judged.",
                null=True,
            ),
        ),
    ]
