"""The queue's schedule that looks every minute for what died workers left behind."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "toolflow sweep"


def add_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    schedule = apps.get_model("django_q", "Schedule")
    schedule.objects.get_or_create(
        name=NAME, defaults={"func": "runs.sweep.sweep", "schedule_type": "I", "minutes": 1, "repeats": -1}
    )


def remove_schedule(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("django_q", "Schedule").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0001_initial"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [migrations.RunPython(add_schedule, remove_schedule)]
