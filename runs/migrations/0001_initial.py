import datetime

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import flows.json_field
import runs.models.webhook
from runs.migrations import _beyond_models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
        ("flows", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("passed", "Passed"),
                            ("failed", "Failed"),
                            ("invalid", "Invalid"),
                            ("errored", "Errored"),
                            ("interrupted", "Interrupted"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="",
                        max_length=11,
                    ),
                ),
                ("input", flows.json_field.OrderedJSONField(blank=True, null=True)),
                ("output", flows.json_field.OrderedJSONField(blank=True, null=True)),
                (
                    "raw_output",
                    flows.json_field.OrderedJSONField(
                        blank=True,
                        help_text="What came back before the sanitizer, where it differs from the output.",
                        null=True,
                    ),
                ),
                ("model", models.CharField(blank=True, default="", max_length=200)),
                ("response_id", models.CharField(blank=True, default="", max_length=200)),
                ("finish_reason", models.CharField(blank=True, default="", max_length=50)),
                ("error", models.JSONField(blank=True, null=True)),
                ("failure_reason", models.TextField(blank=True, default="")),
                ("plugins", models.JSONField(blank=True, default=dict)),
                (
                    "received",
                    flows.json_field.PackedJSONField(
                        blank=True,
                        help_text="The arguments that came back, not redacted, from when they are stored until they are judged.",
                        null=True,
                    ),
                ),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["step", "number"],
            },
        ),
        migrations.CreateModel(
            name="LimitLedger",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="Lock",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("token", models.PositiveBigIntegerField(default=0, help_text="Fencing token of the last lease.")),
                (
                    "held_until",
                    models.DateTimeField(
                        blank=True, help_text="When the lease expires; empty if it is free.", null=True
                    ),
                ),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("input", flows.json_field.OrderedJSONField()),
                (
                    "is_input_redacted",
                    models.BooleanField(default=False, help_text="The input is not the one that the run works on."),
                ),
                (
                    "model_settings",
                    models.JSONField(help_text="What calls fall back to, as resolved when the run was submitted."),
                ),
                (
                    "is_simulated",
                    models.BooleanField(default=False, help_text="The simulated model answers; nothing is billed."),
                ),
                (
                    "again_of",
                    models.BigIntegerField(
                        blank=True, help_text="The number of the run that this one repeats; it may be gone.", null=True
                    ),
                ),
                (
                    "labels",
                    models.JSONField(blank=True, default=list, help_text="Short texts given when the run was started."),
                ),
                (
                    "metadata",
                    flows.json_field.OrderedJSONField(
                        default=dict, help_text="What the caller keeps; ToolFlow only hands it on."
                    ),
                ),
                (
                    "webhook_url",
                    models.URLField(
                        blank=True, default="", help_text="What gets a message when the run has ended.", max_length=2000
                    ),
                ),
                (
                    "priority",
                    models.PositiveSmallIntegerField(choices=[(0, "High"), (1, "Normal"), (2, "Low")], default=1),
                ),
                (
                    "token_budget",
                    models.PositiveBigIntegerField(blank=True, help_text="Tokens that the run may use.", null=True),
                ),
                (
                    "cost_budget",
                    models.DecimalField(
                        blank=True, decimal_places=8, help_text="USD that the run may cost.", max_digits=16, null=True
                    ),
                ),
                (
                    "time_limit",
                    models.DurationField(blank=True, help_text="How long the run may take from its start.", null=True),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("errored", "Errored"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                        max_length=10,
                    ),
                ),
                (
                    "end_reason",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("all_steps_passed", "All steps passed"),
                            ("step_failed", "A step did not pass"),
                            ("provider_error", "The provider could not be reached"),
                            ("call_refused", "The call failed for good"),
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
                ("end_sentence", models.TextField(blank=True, default="")),
                ("blocking_step", models.PositiveIntegerField(blank=True, null=True)),
                ("blocking_attempt", models.PositiveIntegerField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("owner", models.CharField(blank=True, default="", max_length=200)),
                ("epoch", models.PositiveIntegerField(default=0)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "suspect_since",
                    models.DateTimeField(
                        blank=True,
                        help_text="When a sweep first found the lease expired; a live worker clears it.",
                        null=True,
                    ),
                ),
                (
                    "record_number",
                    models.PositiveIntegerField(default=0, help_text="How many writes of its workers are stored."),
                ),
                ("available_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deadline_at", models.DateTimeField(blank=True, null=True)),
                (
                    "next_model",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The model that its next call asks, for rate limits.",
                        max_length=200,
                    ),
                ),
                (
                    "waiting_for",
                    models.TextField(blank=True, default="", help_text="What a queued run waits for, in one sentence."),
                ),
                (
                    "waiting_since",
                    models.DateTimeField(
                        blank=True, help_text="Since when no worker has what the run's version needs.", null=True
                    ),
                ),
                ("cancel_requested", models.BooleanField(default=False)),
                ("crashes", models.PositiveIntegerField(default=0)),
                (
                    "revision",
                    models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows."),
                ),
                ("step_count", models.PositiveIntegerField()),
                ("steps_passed", models.PositiveIntegerField(default=0)),
                ("attempt_count", models.PositiveIntegerField(default=0)),
                ("retry_count", models.PositiveIntegerField(default=0)),
                ("issues_low", models.PositiveIntegerField(default=0)),
                ("issues_medium", models.PositiveIntegerField(default=0)),
                ("issues_high", models.PositiveIntegerField(default=0)),
                ("issues_critical", models.PositiveIntegerField(default=0)),
                ("prompt_tokens", models.PositiveBigIntegerField(default=0)),
                ("completion_tokens", models.PositiveBigIntegerField(default=0)),
                ("total_tokens", models.PositiveBigIntegerField(default=0)),
                ("cached_tokens", models.PositiveBigIntegerField(default=0)),
                ("reasoning_tokens", models.PositiveBigIntegerField(default=0)),
                ("cost", models.DecimalField(blank=True, decimal_places=8, help_text="USD", max_digits=16, null=True)),
                (
                    "unpriced_count",
                    models.PositiveIntegerField(default=0, help_text="Attempts that used tokens at an unknown price."),
                ),
                (
                    "is_counted",
                    models.BooleanField(
                        default=False, help_text="Statistics and search know of this run; it has ended."
                    ),
                ),
                (
                    "outputs_removed_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Since when only figures are left of what the run read and wrote.",
                        null=True,
                    ),
                ),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runs",
                        to="flows.flow",
                    ),
                ),
                (
                    "started_by",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runs",
                        to="flows.flowversion",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
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
        migrations.CreateModel(
            name="AttemptRequest",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="sent",
                        serialize=False,
                        to="runs.attempt",
                    ),
                ),
                ("body", flows.json_field.PackedJSONField()),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="TokenUsage",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="usage",
                        serialize=False,
                        to="runs.attempt",
                    ),
                ),
                ("prompt", models.PositiveBigIntegerField(default=0)),
                ("completion", models.PositiveBigIntegerField(default=0)),
                ("total", models.PositiveBigIntegerField(default=0)),
                ("cached", models.PositiveBigIntegerField(default=0)),
                ("reasoning", models.PositiveBigIntegerField(default=0)),
                ("reported", models.BooleanField(default=True)),
                ("cost", models.DecimalField(blank=True, decimal_places=8, help_text="USD", max_digits=16, null=True)),
                ("unpriced", models.PositiveIntegerField(default=0)),
            ],
            options={
                "verbose_name_plural": "token usage",
            },
        ),
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
            name="OriginalInput",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="original_input",
                        serialize=False,
                        to="runs.run",
                    ),
                ),
                ("input", flows.json_field.PackedJSONField()),
            ],
        ),
        migrations.CreateModel(
            name="ProviderIdentity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("issuer", models.CharField(max_length=400)),
                ("subject", models.CharField(max_length=255)),
                ("linked_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="provider_identities",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="PurgedDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                ("runs", models.PositiveBigIntegerField()),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="purged_days",
                        to="flows.flow",
                    ),
                ),
            ],
            options={
                "ordering": ["flow", "day"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="RateLimit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "model",
                    models.CharField(
                        blank=True,
                        default="",
                        error_messages={"unique": "There is a limit for the same model already; change that one."},
                        help_text="Whose calls count here, together: a model (“gpt-5-mini”), all whose names begin so (“gpt-5*”), or empty for all models.",
                        max_length=200,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[^\\s*]+\\*?\\Z",
                                "Write a model's name such as “gpt-5-mini”, or the beginning of names with one “*” at the end such as “gpt-5*”; leave it empty for all models.",
                            )
                        ],
                    ),
                ),
                (
                    "calls_in_flight",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Calls under way at the same time.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000000000),
                        ],
                    ),
                ),
                (
                    "requests_per_minute",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Calls that begin in a minute.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000000000),
                        ],
                    ),
                ),
                (
                    "tokens_per_minute",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Tokens of prompts and answers together.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000000000),
                        ],
                    ),
                ),
            ],
            options={
                "ordering": ["model"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("calls_in_flight__isnull", False),
                            ("requests_per_minute__isnull", False),
                            ("tokens_per_minute__isnull", False),
                            _connector="OR",
                        ),
                        name="rate_limit_limits_something",
                        violation_error_message="Give at least one of the three numbers; without any the row limits nothing.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RunFacet",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("code", "Issue code"),
                            ("audit", "Audit"),
                            ("severity", "Severity at least"),
                            ("model", "Model"),
                            ("label", "Label"),
                        ],
                        max_length=8,
                    ),
                ),
                ("value", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(help_text="When the run was created.")),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="facets", to="runs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["kind", "value", "created_at", "run"],
            },
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("query", models.TextField(help_text="The filters as they stand in the address of the list.")),
                (
                    "is_shared",
                    models.BooleanField(default=False, help_text="Everybody who may see runs sees this view."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name", "pk"],
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveIntegerField()),
                ("name", models.CharField(max_length=100)),
                (
                    "run",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="runs.run"),
                ),
            ],
            options={
                "ordering": ["run", "index"],
            },
        ),
        migrations.AddField(
            model_name="attempt",
            name="step",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="attempts", to="runs.step"
            ),
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
                "ordering": ["-at", "-pk"],
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "message_id",
                    models.CharField(default=runs.models.webhook.make_message_id, max_length=50, unique=True),
                ),
                (
                    "event",
                    models.CharField(
                        choices=[
                            ("run.succeeded", "Run succeeded"),
                            ("run.failed", "Run failed"),
                            ("run.errored", "Run errored"),
                            ("run.cancelled", "Run cancelled"),
                        ],
                        max_length=20,
                    ),
                ),
                ("url", models.TextField()),
                (
                    "host",
                    models.CharField(help_text="Of the address: few are sent to one host at a time.", max_length=255),
                ),
                (
                    "body",
                    models.TextField(
                        blank=True, default="", help_text="What is sent, as it was first; empty before that."
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("delivered", "Delivered"), ("failed", "Not delivered")],
                        default="waiting",
                        max_length=9,
                    ),
                ),
                ("try_count", models.PositiveIntegerField(default=0)),
                (
                    "tries_before",
                    models.PositiveIntegerField(default=0, help_text="Tries from before somebody asked for it anew."),
                ),
                (
                    "last_status",
                    models.PositiveSmallIntegerField(
                        blank=True, help_text="HTTP status of the last answer.", null=True
                    ),
                ),
                (
                    "next_try_at",
                    models.DateTimeField(blank=True, db_default=django.db.models.functions.datetime.Now(), null=True),
                ),
                ("sending_until", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="webhook_deliveries", to="runs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="WebhookTry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("signature", models.TextField(blank=True, default="", help_text="The header of that name.")),
                (
                    "status",
                    models.PositiveSmallIntegerField(blank=True, help_text="HTTP status of the answer.", null=True),
                ),
                (
                    "problem",
                    models.TextField(blank=True, default="", help_text="Why it did not succeed, in one sentence."),
                ),
                ("response", models.TextField(blank=True, default="", help_text="How the body of the answer begins.")),
                (
                    "delivery",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tries", to="runs.webhookdelivery"
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("digest", models.CharField(max_length=128, primary_key=True, serialize=False)),
                ("token_key", models.CharField(db_index=True, max_length=25)),
                ("created", models.DateTimeField(auto_now_add=True)),
                ("expiry", models.DateTimeField(blank=True, null=True)),
                ("name", models.CharField(max_length=100)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("read", "Read"),
                            ("run", "Read, start and cancel runs"),
                            ("edit", "Read, start and cancel runs, and change flows"),
                        ],
                        default="read",
                        max_length=10,
                    ),
                ),
                ("last_used_at", models.DateTimeField(blank=True, help_text="To the minute.", null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="auth_token_set",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "API token",
                "ordering": ["-created"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["read", "run", "edit"])), name="token_scope_known"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="BulkAction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "token",
                    models.UUIDField(
                        help_text="Of the form that asked for it: sent twice, it is done once.", unique=True
                    ),
                ),
                ("kind", models.CharField(choices=[("cancel", "Cancel"), ("run_again", "Run again")], max_length=9)),
                (
                    "run_ids",
                    models.JSONField(blank=True, help_text="The chosen runs; null for all that match.", null=True),
                ),
                (
                    "query",
                    models.TextField(blank=True, default="", help_text="The filters of the list, as in its address."),
                ),
                (
                    "time_zone",
                    models.CharField(
                        default="UTC", help_text="In which days of filters begin and end.", max_length=100
                    ),
                ),
                (
                    "uses_live_version",
                    models.BooleanField(default=False, help_text="Run again under the live version of the flow."),
                ),
                ("most", models.PositiveIntegerField(blank=True, help_text="How many runs it may start.", null=True)),
                (
                    "expected",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="How many runs it was confirmed for; null if that was not known.",
                        null=True,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("working", "Working"),
                            ("done", "Done"),
                            ("stopped", "Stopped"),
                            ("failed", "Failed"),
                        ],
                        default="waiting",
                        max_length=7,
                    ),
                ),
                ("problem", models.TextField(blank=True, default="", help_text="Why it failed, in one sentence.")),
                ("newest", models.BigIntegerField(help_text="No run with a higher number is meant.")),
                (
                    "oldest",
                    models.BigIntegerField(help_text="The number of the last run that is meant; 0 if it is not known."),
                ),
                (
                    "newest_at",
                    models.DateTimeField(
                        blank=True, help_text="When the first run that matches was created.", null=True
                    ),
                ),
                (
                    "oldest_at",
                    models.DateTimeField(
                        blank=True, help_text="When the last run that matches was created.", null=True
                    ),
                ),
                ("position", models.BigIntegerField(help_text="The number of the last run that was looked at.")),
                (
                    "position_at",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="When that was created, as the database writes it.",
                        max_length=40,
                    ),
                ),
                (
                    "turn",
                    models.PositiveIntegerField(
                        default=0, help_text="Counts the messages that pass it on; only the last holds."
                    ),
                ),
                (
                    "revision",
                    models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows."),
                ),
                ("done", models.PositiveIntegerField(default=0)),
                ("skipped", models.PositiveIntegerField(default=0, help_text="Runs where there was nothing to do.")),
                ("failed", models.PositiveIntegerField(default=0, help_text="Runs where it was not possible.")),
                (
                    "notes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="The first runs that were skipped or failed: number, which of the two, why.",
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                (
                    "touched_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), help_text="When it last came on."
                    ),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["state", "touched_at"], name="bulk_by_state")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["cancel", "run_again"])), name="bulk_kind_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "working", "done", "stopped", "failed"])),
                        name="bulk_state_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyAudits",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                (
                    "is_simulated",
                    models.BooleanField(default=False, help_text="Runs that the simulated model answered."),
                ),
                ("step", models.PositiveIntegerField(help_text="Its position, from 1.")),
                (
                    "audit",
                    models.CharField(
                        blank=True, help_text="Its name; empty where ToolFlow raised the issue.", max_length=200
                    ),
                ),
                (
                    "code",
                    models.CharField(
                        blank=True, help_text="Of what ToolFlow raised; empty for audits.", max_length=200
                    ),
                ),
                ("fired", models.PositiveBigIntegerField(default=0, help_text="Attempts in which it raised an issue.")),
                (
                    "retried",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Of these, attempts that were followed by another one of their step."
                    ),
                ),
                (
                    "fixed",
                    models.PositiveBigIntegerField(
                        default=0,
                        help_text="Of these, where the next one brought a usable output with none of its issues.",
                    ),
                ),
                (
                    "retry_tokens",
                    models.PositiveBigIntegerField(default=0, help_text="Tokens of the attempts that followed."),
                ),
                (
                    "retry_cost",
                    models.DecimalField(
                        decimal_places=8,
                        default=0,
                        help_text="USD of the attempts that followed, as far as prices are known.",
                        max_digits=20,
                    ),
                ),
                (
                    "retry_unpriced",
                    models.PositiveBigIntegerField(
                        default=0,
                        help_text="Of the attempts that followed, those that used tokens at an unknown price.",
                    ),
                ),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flow"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flowversion"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "daily audits",
                "ordering": ["flow", "day", "version", "step", "audit", "code"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("flow", "day", "version", "is_simulated", "step", "audit", "code"),
                        name="daily_audits_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyIssues",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                (
                    "is_simulated",
                    models.BooleanField(default=False, help_text="Runs that the simulated model answered."),
                ),
                ("code", models.CharField(max_length=200)),
                (
                    "audit",
                    models.CharField(blank=True, help_text="Empty where ToolFlow itself raised it.", max_length=200),
                ),
                ("severity", models.CharField(max_length=8)),
                ("issues", models.PositiveBigIntegerField(default=0)),
                (
                    "runs",
                    models.PositiveBigIntegerField(default=0, help_text="Runs in which it was raised at least once."),
                ),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flow"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flowversion"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "daily issues",
                "ordering": ["flow", "day", "version", "code"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("flow", "day", "version", "is_simulated", "code", "audit", "severity"),
                        name="daily_issues_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyRuns",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                (
                    "is_simulated",
                    models.BooleanField(default=False, help_text="Runs that the simulated model answered."),
                ),
                (
                    "model",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="As the definition names it; empty for several, and where none is asked.",
                        max_length=200,
                    ),
                ),
                (
                    "has_several",
                    models.BooleanField(default=False, help_text="The steps of these runs ask for several models."),
                ),
                ("runs", models.PositiveBigIntegerField(default=0)),
                ("succeeded", models.PositiveBigIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("errored", models.PositiveBigIntegerField(default=0)),
                ("cancelled", models.PositiveBigIntegerField(default=0)),
                (
                    "first_time",
                    models.PositiveBigIntegerField(default=0, help_text="Runs that succeeded without any retry."),
                ),
                ("total_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=8, default=0, help_text="USD, as far as prices are known.", max_digits=20
                    ),
                ),
                (
                    "unpriced",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Attempts that used tokens at an unknown price: the cost is without them."
                    ),
                ),
                (
                    "durations",
                    models.JSONField(
                        default=dict, help_text="How many runs took how long: counts by the number of their bucket."
                    ),
                ),
                (
                    "begun",
                    models.PositiveBigIntegerField(default=0, help_text="First attempts of steps that have an output."),
                ),
                (
                    "attempts",
                    models.PositiveBigIntegerField(
                        default=0, help_text="All attempts, also those that were interrupted."
                    ),
                ),
                (
                    "retries",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Attempts with an output that followed another one of their step."
                    ),
                ),
                ("prompt_tokens", models.PositiveBigIntegerField(default=0)),
                ("completion_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "cached_tokens",
                    models.PositiveBigIntegerField(
                        default=0, help_text="The part of the prompt tokens that the provider had cached."
                    ),
                ),
                (
                    "reasoning_tokens",
                    models.PositiveBigIntegerField(
                        default=0, help_text="The part of the completion tokens that was thought and not shown."
                    ),
                ),
                ("first_tokens", models.PositiveBigIntegerField(default=0, help_text="Tokens of first attempts.")),
                (
                    "first_cost",
                    models.DecimalField(decimal_places=8, default=0, help_text="USD of first attempts.", max_digits=20),
                ),
                (
                    "useful_retry_tokens",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Tokens of retries of steps that passed in the end."
                    ),
                ),
                (
                    "useful_retry_cost",
                    models.DecimalField(
                        decimal_places=8,
                        default=0,
                        help_text="USD of retries of steps that passed in the end.",
                        max_digits=20,
                    ),
                ),
                (
                    "wasted_retry_tokens",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Tokens of retries of steps that did not pass."
                    ),
                ),
                (
                    "wasted_retry_cost",
                    models.DecimalField(
                        decimal_places=8,
                        default=0,
                        help_text="USD of retries of steps that did not pass.",
                        max_digits=20,
                    ),
                ),
                (
                    "timed",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Runs that were started, so that they have a duration."
                    ),
                ),
                (
                    "duration_total",
                    models.DurationField(
                        default=datetime.timedelta(0), help_text="From start to end, all timed runs together."
                    ),
                ),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="daily_runs",
                        to="flows.flow",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="daily_runs", to="flows.flowversion"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "daily runs",
                "ordering": ["flow", "day", "version", "model"],
                "indexes": [models.Index(fields=["day"], name="daily_runs_by_day")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("flow", "day", "version", "is_simulated", "model", "has_several"),
                        name="daily_runs_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DailySteps",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                (
                    "is_simulated",
                    models.BooleanField(default=False, help_text="Runs that the simulated model answered."),
                ),
                ("step", models.PositiveIntegerField(help_text="Its position, from 1.")),
                ("name", models.CharField(max_length=100)),
                (
                    "model",
                    models.CharField(
                        blank=True,
                        help_text="The one that answered; empty for local steps and where none did.",
                        max_length=200,
                    ),
                ),
                (
                    "begun",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Runs whose first attempt with an output of this step it was."
                    ),
                ),
                (
                    "passed",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Attempts that passed: runs that got past this step."
                    ),
                ),
                ("first_passed", models.PositiveBigIntegerField(default=0, help_text="First attempts that passed.")),
                (
                    "attempts",
                    models.PositiveBigIntegerField(
                        default=0, help_text="All attempts, also those that were interrupted."
                    ),
                ),
                (
                    "retries",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Attempts with an output that followed another one of their step."
                    ),
                ),
                ("prompt_tokens", models.PositiveBigIntegerField(default=0)),
                ("completion_tokens", models.PositiveBigIntegerField(default=0)),
                ("total_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=8, default=0, help_text="USD, as far as prices are known.", max_digits=20
                    ),
                ),
                (
                    "unpriced",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Attempts that used tokens at an unknown price: the cost is without them."
                    ),
                ),
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flow"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flowversion"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "daily steps",
                "ordering": ["flow", "day", "version", "step"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("flow", "day", "version", "is_simulated", "step", "model"), name="daily_steps_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="FlowSpending",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("period_start", models.DateField(help_text="The first day of the period, UTC.")),
                ("tokens", models.PositiveBigIntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=8, default=0, help_text="USD", max_digits=18)),
                (
                    "flow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="spending", to="flows.flow"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "flow spending",
                "ordering": ["flow", "period_start"],
                "constraints": [models.UniqueConstraint(fields=("flow", "period_start"), name="flow_spending_once")],
            },
        ),
        migrations.CreateModel(
            name="IdempotentRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255)),
                (
                    "fingerprint",
                    models.CharField(
                        help_text="HMAC-SHA-256 of method, address and body, with the secret key.", max_length=64
                    ),
                ),
                (
                    "status",
                    models.PositiveSmallIntegerField(
                        help_text="HTTP status of the answer; none while it is made.", null=True
                    ),
                ),
                ("headers", models.JSONField(default=dict)),
                ("body", models.TextField(default="")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["created_at"], name="idempotent_by_creation")],
                "constraints": [models.UniqueConstraint(fields=("user", "key"), name="idempotency_key_once")],
            },
        ),
        migrations.CreateModel(
            name="Issue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveIntegerField()),
                ("code", models.CharField(max_length=200)),
                (
                    "severity",
                    models.CharField(
                        choices=[("low", "Low"), ("medium", "Medium"), ("high", "High"), ("critical", "Critical")],
                        max_length=8,
                    ),
                ),
                ("description", models.TextField()),
                ("audit", models.CharField(blank=True, default="", max_length=200)),
                ("path", models.TextField(blank=True, null=True)),
                ("context", flows.json_field.OrderedJSONField(blank=True, default=dict)),
                ("suggestions", models.JSONField(blank=True, default=list)),
                (
                    "added_fields",
                    flows.json_field.OrderedJSONField(
                        blank=True, default=dict, help_text="Fields that the audit added."
                    ),
                ),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="issues", to="runs.attempt"
                    ),
                ),
            ],
            options={
                "ordering": ["attempt", "position"],
                "constraints": [
                    models.UniqueConstraint(fields=("attempt", "position"), name="issue_position_once"),
                    models.CheckConstraint(
                        condition=models.Q(("severity__in", ["low", "medium", "high", "critical"])),
                        name="issue_severity_known",
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "queued")), fields=["available_at", "id"], name="run_queued"
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
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["flow", "created_at", "id"], name="run_by_flow"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["status", "created_at", "id"], name="run_by_status"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["version", "status"], name="run_by_version"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["version", "created_at", "id"], name="run_by_version_in_order"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["started_by", "created_at", "id"], name="run_by_user"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["created_at", "id"], name="run_by_creation"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "failed")), fields=["-ended_at"], name="run_failed_lately"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "errored")), fields=["-ended_at"], name="run_errored_lately"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False), ("is_counted", False)),
                fields=["id"],
                name="run_uncounted",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False), ("outputs_removed_at__isnull", True)),
                fields=["flow", "ended_at"],
                name="run_by_end",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("outputs_removed_at__isnull", False)),
                fields=["flow", "ended_at"],
                name="run_by_end_without_outputs",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["queued", "running", "succeeded", "failed", "errored", "cancelled"])
                ),
                name="run_status_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__in", [0, 1, 2])), name="run_priority_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", False), ("status__in", ("succeeded", "failed", "errored", "cancelled"))
                    ),
                    models.Q(("ended_at__isnull", True), ("status__in", ["queued", "running"])),
                    _connector="OR",
                ),
                name="run_ended_at_iff_ended",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "running"), _negated=True), ("lease_until__isnull", False), _connector="OR"
                ),
                name="run_running_has_lease",
            ),
        ),
        migrations.AddConstraint(
            model_name="provideridentity",
            constraint=models.UniqueConstraint(fields=("issuer", "subject"), name="one_account_of_a_subject"),
        ),
        migrations.AddConstraint(
            model_name="provideridentity",
            constraint=models.UniqueConstraint(fields=("issuer", "user"), name="one_subject_of_an_account"),
        ),
        migrations.AddConstraint(
            model_name="purgedday",
            constraint=models.UniqueConstraint(fields=("flow", "day"), name="purged_day_once"),
        ),
        migrations.AddConstraint(
            model_name="runfacet",
            constraint=models.UniqueConstraint(fields=("kind", "value", "created_at", "run"), name="run_facet_once"),
        ),
        migrations.AddIndex(
            model_name="savedview",
            index=models.Index(condition=models.Q(("is_shared", True)), fields=["name"], name="saved_view_shared"),
        ),
        migrations.AddConstraint(
            model_name="savedview",
            constraint=models.UniqueConstraint(fields=("owner", "name"), name="saved_view_name_once"),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(fields=("run", "index"), name="step_index_once"),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(fields=("step", "number"), name="attempt_number_once"),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(condition=models.Q(("number__gte", 1)), name="attempt_number_from_one"),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("outcome__in", ["", "passed", "failed", "invalid", "errored", "interrupted", "cancelled"])
                ),
                name="attempt_outcome_known",
            ),
        ),
        migrations.AddIndex(
            model_name="trailentry",
            index=models.Index(fields=["at", "id"], name="trail_by_time"),
        ),
        migrations.AddIndex(
            model_name="trailentry",
            index=models.Index(fields=["actor_name", "at", "id"], name="trail_by_actor"),
        ),
        migrations.AddIndex(
            model_name="trailentry",
            index=models.Index(fields=["action", "at", "id"], name="trail_by_action"),
        ),
        migrations.AddIndex(
            model_name="trailentry",
            index=models.Index(fields=["object_kind", "at", "id"], name="trail_by_kind"),
        ),
        migrations.AddIndex(
            model_name="trailentry",
            index=models.Index(fields=["object_kind", "object_id", "at", "id"], name="trail_by_object"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(condition=models.Q(("state", "waiting")), fields=["next_try_at"], name="webhook_due"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["state", "-id"], name="webhook_by_state"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.UniqueConstraint(fields=("run", "url"), name="webhook_once"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("event__in", ["run.succeeded", "run.failed", "run.errored", "run.cancelled"])),
                name="webhook_event_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["waiting", "delivered", "failed"])), name="webhook_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="webhooktry",
            constraint=models.UniqueConstraint(fields=("delivery", "number"), name="webhook_try_once"),
        ),
        migrations.RunPython(_beyond_models.create_search_tables),
        migrations.RunPython(_beyond_models.protect_trail),
        migrations.RunPython(_beyond_models.set_storage),
        migrations.RunPython(_beyond_models.create_access_groups),
        migrations.RunPython(_beyond_models.create_schedules),
    ]
