from typing import Any

import django.db.models.deletion
import django.db.models.functions.datetime
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import runs.models.webhook
from runs.access_groups import create_groups

EVENTS = {
    "run.succeeded": "Run succeeded",
    "run.failed": "Run failed",
    "run.errored": "Run errored",
    "run.cancelled": "Run cancelled",
    "webhook.test": "Test",
}
PERMISSIONS = [f"runs.{action}_webhookendpoint" for action in ("view", "add", "change", "delete")]
SECRET: Any = [
    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
    (
        "secret_seed",
        models.CharField(default=runs.models.webhook.make_secret_seed, editable=False, max_length=60),
    ),
    ("previous_seed", models.CharField(blank=True, default="", editable=False, max_length=60)),
    ("secret_changed_at", models.DateTimeField(blank=True, editable=False, null=True)),
]


def copy_addresses(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Make an endpoint of the address that each flow has; secrets stay those that receivers know."""
    get_model: Any = apps.get_model
    changes = {row.signer: row for row in get_model("flows", "WebhookSecretChange").objects.all()}

    def find_seeds(signer: str) -> dict[str, object]:
        change = changes.get(signer)
        if change is None:
            return {"secret_seed": signer}
        before = f"{signer}, change {change.number - 1}" if change.number > 1 else signer
        return {
            "secret_seed": f"{signer}, change {change.number}",
            "previous_seed": before,
            "secret_changed_at": change.changed_at,
        }

    endpoints, deliveries = get_model("runs", "WebhookEndpoint").objects, get_model("runs", "WebhookDelivery").objects
    for flow in get_model("flows", "Flow").objects.exclude(webhook_url="").order_by("pk"):
        endpoint = endpoints.create(flow=flow, url=flow.webhook_url, **find_seeds(f"flow {flow.pk}"))
        deliveries.filter(run__flow=flow, url=flow.webhook_url).update(endpoint=endpoint)
    flow_of_run = get_model("runs", "Run").objects.filter(pk=models.OuterRef("run")).values("flow")
    deliveries.update(flow=models.Subquery(flow_of_run))
    get_model("runs", "InstallationSecret").objects.create(pk=1, **find_seeds("installation"))


def give_permissions(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Let editors see and change endpoints, as they could change the addresses of flows."""
    create_groups(apps=apps, using=editor.connection.alias, permissions=PERMISSIONS)


class Migration(migrations.Migration):
    dependencies = [("flows", "0001_initial"), ("runs", "0004_remove_purged_run_counts")]

    operations = [
        migrations.CreateModel(name="InstallationSecret", fields=SECRET, options={"default_permissions": ()}),
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                *SECRET,
                ("url", models.CharField(max_length=2000, verbose_name="URL")),
                (
                    "flow",
                    models.ForeignKey(
                        blank=True,
                        help_text="Empty: runs of all flows.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="webhook_endpoints",
                        to="flows.flow",
                    ),
                ),
                (
                    "event_types",
                    models.JSONField(blank=True, default=list, help_text="Which ends of runs are sent. None: all."),
                ),
                ("is_enabled", models.BooleanField(default=True, verbose_name="enabled")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.UniqueConstraint(fields=("flow", "url"), name="webhook_endpoint_once"),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.UniqueConstraint(
                condition=models.Q(("flow", None)), fields=("url",), name="webhook_endpoint_once_of_all"
            ),
        ),
        migrations.RemoveConstraint(model_name="webhookdelivery", name="webhook_event_known"),
        migrations.AlterField(
            model_name="webhookdelivery",
            name="event",
            field=models.CharField(choices=list(EVENTS.items()), max_length=20),
        ),
        migrations.AlterField(
            model_name="webhookdelivery",
            name="run",
            field=models.ForeignKey(
                help_text="Null for a test.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="webhook_deliveries",
                to="runs.run",
            ),
        ),
        migrations.AlterField(
            model_name="webhookdelivery",
            name="tries_before",
            field=models.PositiveIntegerField(default=0, help_text="Tries from before it was sent again."),
        ),
        migrations.AddField(
            model_name="webhookdelivery",
            name="endpoint",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="deliveries",
                to="runs.webhookendpoint",
            ),
        ),
        migrations.AddField(
            model_name="webhookdelivery",
            name="flow",
            field=models.ForeignKey(
                db_index=False,
                help_text="Of the run or the endpoint; null for a test of one of all flows.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="flows.flow",
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["flow", "-id"], name="webhook_by_flow"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["endpoint", "-id"], name="webhook_by_endpoint"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("event__in", list(EVENTS))), name="webhook_event_known"
            ),
        ),
        migrations.RunPython(copy_addresses, migrations.RunPython.noop),
        migrations.RunPython(give_permissions, migrations.RunPython.noop),
    ]
