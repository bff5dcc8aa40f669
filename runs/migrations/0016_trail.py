"""The trail of who did what, which triggers keep as it is; and sessions that know whose they are."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from runs.access_groups import create_groups

REFUSAL = "entries of the trail are kept as they are"
KEPT = "at, actor_name, token_name, address, action, object_kind, object_id, object_label, details, request_id"

# All that may change is that a user is gone. Django's “flush” deletes rows one by one on SQLite, so there is no trigger
# for that: see ADR 0016.
SQLITE = [
    (
        f"CREATE TRIGGER trail_is_kept BEFORE UPDATE OF id, {KEPT} ON runs_trailentry "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    ),
    (
        "CREATE TRIGGER trail_actor_is_kept BEFORE UPDATE OF actor_id ON runs_trailentry WHEN NEW.actor_id IS NOT NULL "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    ),
]
POSTGRESQL = [
    (
        "CREATE FUNCTION runs_keep_trail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF TG_OP = 'DELETE' AND current_setting('toolflow.purges_trail', true) = 'on' THEN RETURN OLD; END IF; "
        f"RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    ),
    (
        f"CREATE TRIGGER trail_is_kept BEFORE UPDATE OF id, {KEPT} ON runs_trailentry "
        "FOR EACH ROW EXECUTE FUNCTION runs_keep_trail()"
    ),
    (
        "CREATE TRIGGER trail_actor_is_kept BEFORE UPDATE OF actor_id ON runs_trailentry "
        "FOR EACH ROW WHEN (NEW.actor_id IS NOT NULL) EXECUTE FUNCTION runs_keep_trail()"
    ),
    (
        "CREATE TRIGGER trail_is_not_deleted BEFORE DELETE ON runs_trailentry "
        "FOR EACH ROW EXECUTE FUNCTION runs_keep_trail()"
    ),
]


def add_triggers(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for statement in POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE:
        schema_editor.execute(statement)


def remove_triggers(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    # They go with the table; a function of PostgreSQL doesn't.
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP FUNCTION runs_keep_trail() CASCADE")


def extend_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    create_groups(apps=apps, using=schema_editor.connection.alias, permissions=["runs.view_trailentry"])


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0015_webhooks"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BrowserSession",
            fields=[
                (
                    "session_key",
                    models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name="session key"),
                ),
                ("session_data", models.TextField(verbose_name="session data")),
                ("expire_date", models.DateTimeField(db_index=True, verbose_name="expire date")),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="browser_sessions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "abstract": False,
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="TrailEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "actor_name",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Of a sign-in that failed, the name that was tried.",
                        max_length=150,
                    ),
                ),
                (
                    "token_name",
                    models.CharField(
                        blank=True, default="", help_text="If it was done by an API token.", max_length=100
                    ),
                ),
                (
                    "address",
                    models.CharField(blank=True, default="", help_text="Where the request came from.", max_length=45),
                ),
                ("action", models.CharField(max_length=40)),
                ("object_kind", models.CharField(blank=True, default="", max_length=30)),
                ("object_id", models.CharField(blank=True, default="", max_length=64)),
                ("object_label", models.CharField(blank=True, default="", max_length=200)),
                ("details", models.JSONField(blank=True, default=dict)),
                ("request_id", models.CharField(blank=True, default="", max_length=64)),
                (
                    "actor",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="trail_entries",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "trail entry",
                "verbose_name_plural": "trail",
                "ordering": ["-pk"],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["at"], name="trail_by_time"),
                    models.Index(fields=["actor_name", "-id"], name="trail_by_actor"),
                    models.Index(fields=["action", "-id"], name="trail_by_action"),
                    models.Index(fields=["object_kind", "object_id", "-id"], name="trail_by_object"),
                ],
            },
        ),
        migrations.RunPython(add_triggers, remove_triggers),
        migrations.RunPython(extend_groups, migrations.RunPython.noop),
    ]
