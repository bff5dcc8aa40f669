"""Filters by day know where numbers of runs are out of the order of creation, also where that came about before."""

from __future__ import annotations

from datetime import timedelta

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models import F, Window
from django.db.models.functions import Lag

MOST = 51
"""One more than are made use of."""


def find_breaks(apps: StateApps, _editor: BaseDatabaseSchemaEditor) -> None:
    runs = apps.get_model("runs", "Run")._default_manager.order_by()
    before = Window(Lag("created_at"), order_by="id")
    found = runs.annotate(before=before).filter(before__gt=F("created_at") + timedelta(minutes=10))
    number_break = apps.get_model("runs", "NumberBreak")
    number_break._default_manager.bulk_create(
        number_break(number=number) for number in found.values_list("pk", flat=True)[:MOST]
    )


class Migration(migrations.Migration):
    dependencies = [("runs", "0027_run_again_of")]

    operations = [
        migrations.CreateModel(
            name="NumberBreak",
            fields=[("number", models.BigIntegerField(primary_key=True, serialize=False))],
            options={"default_permissions": ()},
        ),
        migrations.RunPython(find_breaks, migrations.RunPython.noop),
    ]
