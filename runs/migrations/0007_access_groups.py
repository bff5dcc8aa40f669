"""The groups Viewer, Operator, Editor and Administrator."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from runs.access_groups import create_groups, remove_groups


def add(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    create_groups(apps=apps, using=schema_editor.connection.alias)


def remove(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    remove_groups(apps=apps, using=schema_editor.connection.alias)


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0006_rename_packed_request"),
        ("flows", "0003_revision"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(add, remove)]
