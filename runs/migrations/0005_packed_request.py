from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import flows.json_field

BATCH = 500


def pack_requests(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Copy requests batch by batch, so that no more than one batch is in memory."""
    # The model as it is in this migration, which the type checker doesn't know.
    Attempt: Any = apps.get_model("runs", "Attempt")
    last = 0
    while True:
        batch = list(Attempt.objects.filter(pk__gt=last, request__isnull=False).only("request").order_by("pk")[:BATCH])
        if not batch:
            return
        for attempt in batch:
            attempt.packed_request = attempt.request
        Attempt.objects.bulk_update(batch, ["packed_request"])
        last = batch[-1].pk


def unpack_requests(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """The way back."""
    # The model as it is in this migration, which the type checker doesn't know.
    Attempt: Any = apps.get_model("runs", "Attempt")
    for attempt in Attempt.objects.filter(packed_request__isnull=False).only("packed_request").iterator(BATCH):
        attempt.request = attempt.packed_request
        attempt.save(update_fields=["request"])


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_limits")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="packed_request",
            field=flows.json_field.PackedJSONField(
                blank=True, help_text="The exact body that was sent to the model.", null=True
            ),
        ),
        migrations.RunPython(pack_requests, unpack_requests),
    ]
