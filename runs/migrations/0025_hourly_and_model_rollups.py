"""Runs by the hour of the last days, and by the model that they ask."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("flows", "0008_older_websites"),
        ("runs", "0024_provider_identities"),
    ]

    operations = [
        migrations.CreateModel(
            name="DailyModels",
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
                (
                    "begun",
                    models.PositiveBigIntegerField(
                        default=0, help_text="First attempts of steps; an interrupted one is not the first."
                    ),
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
                        default=0,
                        help_text="Attempts that followed another of their step; interrupted ones are none and have none.",
                    ),
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
                "verbose_name_plural": "daily models",
                "ordering": ["flow", "day", "version", "model"],
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("flow", "day", "version", "is_simulated", "model", "has_several"),
                        name="daily_models_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="HourlyRuns",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="The day on which the runs ended, UTC.")),
                (
                    "is_simulated",
                    models.BooleanField(default=False, help_text="Runs that the simulated model answered."),
                ),
                (
                    "hour",
                    models.PositiveSmallIntegerField(
                        help_text="The hour of the day in which the runs ended, 0 to 23, UTC."
                    ),
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
                    "flow",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="flows.flow"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "hourly runs",
                "ordering": ["flow", "day", "hour"],
                "default_permissions": (),
                "indexes": [models.Index(fields=["day"], name="hourly_runs_by_day")],
                "constraints": [
                    models.UniqueConstraint(fields=("flow", "day", "hour", "is_simulated"), name="hourly_runs_once")
                ],
            },
        ),
    ]
