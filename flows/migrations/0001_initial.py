from decimal import Decimal

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import flows.json_field


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Flow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("model", models.CharField(blank=True, default="", max_length=200)),
                (
                    "temperature",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(2),
                        ],
                    ),
                ),
                (
                    "max_tokens",
                    models.PositiveIntegerField(
                        blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "reasoning_effort",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("none", "None"),
                            ("minimal", "Minimal"),
                            ("low", "Low"),
                            ("medium", "Medium"),
                            ("high", "High"),
                            ("xhigh", "Xhigh"),
                            ("max", "Max"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                (
                    "service_tier",
                    models.CharField(
                        blank=True,
                        choices=[("auto", "Auto"), ("default", "Default"), ("flex", "Flex"), ("priority", "Priority")],
                        default="",
                        max_length=10,
                    ),
                ),
                (
                    "name",
                    models.SlugField(
                        max_length=100,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]+(-[a-z0-9]+)*$",
                                "Use lower-case letters and digits, with a hyphen between words, such as “invoice-extraction”.",
                            )
                        ],
                    ),
                ),
                ("title", models.CharField(max_length=200)),
                ("description", models.TextField(blank=True, default="")),
                ("input_schema", flows.json_field.OrderedJSONField(blank=True, null=True)),
                (
                    "token_budget",
                    models.PositiveBigIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000000000000),
                        ],
                    ),
                ),
                (
                    "cost_budget",
                    models.DecimalField(
                        blank=True,
                        decimal_places=8,
                        max_digits=16,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(Decimal("0.0001")),
                            django.core.validators.MaxValueValidator(Decimal(1000000)),
                        ],
                    ),
                ),
                (
                    "time_limit",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(31622400),
                        ],
                    ),
                ),
                ("redact", models.JSONField(blank=True, default=list)),
                (
                    "max_runs_in_flight",
                    models.PositiveIntegerField(
                        blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "total_token_budget",
                    models.PositiveBigIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000000000000),
                        ],
                    ),
                ),
                (
                    "total_cost_budget",
                    models.DecimalField(
                        blank=True,
                        decimal_places=8,
                        max_digits=16,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(Decimal("0.0001")),
                            django.core.validators.MaxValueValidator(Decimal(1000000)),
                        ],
                    ),
                ),
                (
                    "budget_period",
                    models.CharField(choices=[("day", "Day"), ("month", "Month")], default="month", max_length=5),
                ),
                (
                    "webhook_url",
                    models.CharField(blank=True, default="", max_length=2000),
                ),
                (
                    "keep_days",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(36500),
                        ],
                    ),
                ),
                (
                    "keep_outputs_days",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(36500),
                        ],
                    ),
                ),
                ("revision", models.PositiveIntegerField(default=0, editable=False)),
                ("is_archived", models.BooleanField(default=False, verbose_name="archived")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["title", "pk"],
            },
        ),
        migrations.CreateModel(
            name="WebhookSecretChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "signer",
                    models.CharField(help_text="A flow, by its key, or the installation.", max_length=40, unique=True),
                ),
                ("number", models.PositiveIntegerField(help_text="Of the last change, from 1.")),
                ("changed_at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="FlowVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("spec", flows.json_field.OrderedJSONField()),
                ("digest", models.CharField(max_length=64)),
                ("note", models.CharField(blank=True, default="", max_length=500)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "flow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="flows.flow"
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
            },
        ),
        migrations.AddField(
            model_name="flow",
            name="live_version",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="flows.flowversion",
            ),
        ),
        migrations.CreateModel(
            name="StepDefinition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("model", models.CharField(blank=True, default="", max_length=200)),
                (
                    "temperature",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(2),
                        ],
                    ),
                ),
                (
                    "max_tokens",
                    models.PositiveIntegerField(
                        blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "reasoning_effort",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("none", "None"),
                            ("minimal", "Minimal"),
                            ("low", "Low"),
                            ("medium", "Medium"),
                            ("high", "High"),
                            ("xhigh", "Xhigh"),
                            ("max", "Max"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                (
                    "service_tier",
                    models.CharField(
                        blank=True,
                        choices=[("auto", "Auto"), ("default", "Default"), ("flex", "Flex"), ("priority", "Priority")],
                        default="",
                        max_length=10,
                    ),
                ),
                ("position", models.PositiveIntegerField(default=0)),
                ("name", models.CharField(max_length=100)),
                ("description", models.TextField(blank=True, default="")),
                (
                    "tool_name",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=64,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-zA-Z0-9_-]{1,64}$",
                                "Use 1 to 64 letters, digits, “_” and “-”, as the model's API wants it.",
                            )
                        ],
                    ),
                ),
                ("system_message", models.TextField(blank=True, default="")),
                ("output_type", models.CharField(blank=True, default="", max_length=200)),
                ("output_schema", flows.json_field.OrderedJSONField(blank=True, null=True)),
                ("compute", models.TextField(blank=True, default="", max_length=4000)),
                ("input_expression", models.TextField(blank=True, default="", max_length=4000)),
                ("input_sanitizer", models.TextField(blank=True, default="", max_length=4000)),
                ("output_sanitizer", models.TextField(blank=True, default="", max_length=4000)),
                ("include_results", models.JSONField(blank=True, default=list)),
                (
                    "issue_severity_filter",
                    models.CharField(
                        choices=[("low", "Low"), ("medium", "Medium"), ("high", "High"), ("critical", "Critical")],
                        default="high",
                        max_length=8,
                    ),
                ),
                (
                    "max_retries",
                    models.PositiveIntegerField(default=3, validators=[django.core.validators.MaxValueValidator(100)]),
                ),
                ("stop_on_failure", models.BooleanField(default=True)),
                (
                    "retry_window",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(31622400),
                        ],
                    ),
                ),
                (
                    "time_limit",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(31622400),
                        ],
                    ),
                ),
                ("pass_expression", models.TextField(blank=True, default="", max_length=4000)),
                ("failure_reason_expression", models.TextField(blank=True, default="", max_length=4000)),
                (
                    "flow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="flows.flow"
                    ),
                ),
            ],
            options={
                "verbose_name": "step",
                "ordering": ["position", "pk"],
            },
        ),
        migrations.CreateModel(
            name="AuditRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveIntegerField(default=0)),
                ("name", models.CharField(max_length=100)),
                ("rule", models.TextField(max_length=4000)),
                (
                    "severity",
                    models.CharField(
                        choices=[("low", "Low"), ("medium", "Medium"), ("high", "High"), ("critical", "Critical")],
                        default="critical",
                        max_length=8,
                    ),
                ),
                (
                    "fail_at",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "Its severity"),
                            ("low", "Low"),
                            ("medium", "Medium"),
                            ("high", "High"),
                            ("critical", "Critical"),
                            ("never", "Never"),
                        ],
                        default="",
                        max_length=8,
                    ),
                ),
                ("message", models.TextField(blank=True, default="", max_length=4000)),
                ("message_template", models.TextField(blank=True, default="", max_length=4000)),
                ("suggestions", models.TextField(blank=True, default="", max_length=4000)),
                ("path", models.TextField(blank=True, default="", max_length=4000)),
                (
                    "step",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="audits", to="flows.stepdefinition"
                    ),
                ),
            ],
            options={
                "verbose_name": "audit",
                "ordering": ["position", "pk"],
            },
        ),
        migrations.AddConstraint(
            model_name="flowversion",
            constraint=models.UniqueConstraint(fields=("flow", "number"), name="flow_version_number_once"),
        ),
    ]
