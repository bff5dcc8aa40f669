import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("flows", "0001_initial"),
        ("runs", "0002_sweep_schedule"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="FlowSpending",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("period_start", models.DateField(help_text="The first day of the period, UTC.")),
                ("tokens", models.PositiveBigIntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=8, default=0, help_text="USD", max_digits=18)),
            ],
            options={
                "verbose_name_plural": "flow spending",
                "ordering": ["flow", "period_start"],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("owner", models.CharField(help_text="As in the runs that it holds.", max_length=200, unique=True)),
                ("host", models.CharField(max_length=255)),
                ("pid", models.PositiveIntegerField()),
                ("version", models.CharField(help_text="The version of ToolFlow that it runs.", max_length=50)),
                ("slots", models.PositiveIntegerField(help_text="How many runs it may have under way.")),
                ("in_flight", models.PositiveIntegerField(default=0)),
                (
                    "unable_versions",
                    models.JSONField(default=list, help_text="Versions of flows that it lacks plug-ins for."),
                ),
                ("is_stopping", models.BooleanField(default=False, help_text="It claims no more runs.")),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("heartbeat_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ["host", "started_at"],
            },
        ),
        migrations.AddField(
            model_name="run",
            name="cost_budget",
            field=models.DecimalField(
                blank=True, decimal_places=8, help_text="USD that the run may cost.", max_digits=16, null=True
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="deadline_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="next_model",
            field=models.CharField(
                blank=True, default="", help_text="The model that its next call asks, for rate limits.", max_length=200
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="priority",
            field=models.PositiveSmallIntegerField(choices=[(0, "High"), (1, "Normal"), (2, "Low")], default=1),
        ),
        migrations.AddField(
            model_name="run",
            name="record_number",
            field=models.PositiveIntegerField(default=0, help_text="How many writes of its workers are stored."),
        ),
        migrations.AddField(
            model_name="run",
            name="suspect_since",
            field=models.DateTimeField(
                blank=True, help_text="When a sweep first found the lease expired; a live worker clears it.", null=True
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="time_limit",
            field=models.DurationField(blank=True, help_text="How long the run may take from its start.", null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="token_budget",
            field=models.PositiveBigIntegerField(blank=True, help_text="Tokens that the run may use.", null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="waiting_for",
            field=models.TextField(blank=True, default="", help_text="What a queued run waits for, in one sentence."),
        ),
        migrations.AddField(
            model_name="run",
            name="waiting_since",
            field=models.DateTimeField(
                blank=True, help_text="Since when no worker has what the run's version needs.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="end_reason",
            field=models.CharField(
                blank=True,
                choices=[
                    ("all_steps_passed", "All steps passed"),
                    ("step_failed", "A step did not pass"),
                    ("provider_error", "The provider could not be reached"),
                    ("call_refused", "The provider refused the call"),
                    ("missing_input", "A step had no input"),
                    ("expression_error", "An expression failed"),
                    ("budget_exceeded", "The budget was used up"),
                    ("deadline_exceeded", "The time limit was reached"),
                    ("configuration", "The flow can't run here"),
                    ("crashed", "Its workers died"),
                    ("internal_error", "ToolFlow failed"),
                    ("cancelled", "Cancelled"),
                ],
                default="",
                max_length=32,
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "queued")), fields=["flow", "priority", "id"], name="run_queued_by_flow"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("deadline_at__isnull", False), ("status", "queued")),
                fields=["deadline_at"],
                name="run_queued_by_deadline",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "queued"), ("waiting_since__isnull", False)),
                fields=["waiting_since"],
                name="run_queued_by_waiting",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(condition=models.Q(("status", "running")), fields=["flow"], name="run_running_by_flow"),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__in", [0, 1, 2])), name="run_priority_known"
            ),
        ),
        migrations.AddField(
            model_name="flowspending",
            name="flow",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="spending", to="flows.flow"
            ),
        ),
        migrations.AddConstraint(
            model_name="flowspending",
            constraint=models.UniqueConstraint(fields=("flow", "period_start"), name="flow_spending_once"),
        ),
    ]
