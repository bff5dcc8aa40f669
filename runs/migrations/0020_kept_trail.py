"""PostgreSQL does not empty the trail either; and by which message retention goes on."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

REFUSAL = "entries of the trail are kept as they are"

# Django's “flush” empties all tables: whoever means that sets a variable.
POSTGRESQL = [
    (
        "CREATE FUNCTION runs_keep_whole_trail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF current_setting('toolflow.empties_trail', true) = 'on' THEN RETURN NULL; END IF; "
        f"RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    ),
    (
        "CREATE TRIGGER trail_is_not_emptied BEFORE TRUNCATE ON runs_trailentry "
        "FOR EACH STATEMENT EXECUTE FUNCTION runs_keep_whole_trail()"
    ),
]


def add_trigger(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    # SQLite has no TRUNCATE.
    if schema_editor.connection.vendor == "postgresql":
        for statement in POSTGRESQL:
            schema_editor.execute(statement)


def remove_trigger(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP FUNCTION runs_keep_whole_trail() CASCADE")


class Migration(migrations.Migration):
    dependencies = [("runs", "0019_queued_begun")]

    operations = [
        migrations.CreateModel(
            name="PurgeTurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "number",
                    models.PositiveBigIntegerField(default=0, help_text="Of the last message that was begun."),
                ),
                (
                    "held_until",
                    models.DateTimeField(
                        blank=True,
                        help_text="When that counts as lost; empty if nothing is left to do.",
                        null=True,
                    ),
                ),
            ],
            options={"default_permissions": ()},
        ),
        migrations.RunPython(add_trigger, remove_trigger),
    ]
