import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0003_durable_execution"),
    ]

    operations = [
        migrations.CreateModel(
            name="LimitLedger",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.JSONField(default=dict)),
            ],
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
    ]
