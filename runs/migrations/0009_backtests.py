"""Backtests, and the schedule that resumes them."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
import django.db.models.functions.datetime
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import flows.json_field


def create_schedule(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Create the schedule that sends new tasks for backtests that have lost theirs."""
    schedules = apps.get_model("django_q", "Schedule")._default_manager.using(editor.connection.alias)
    timing = {"schedule_type": "I", "minutes": 1, "repeats": -1}
    schedules.get_or_create(name="toolflow backtests", defaults={"func": "runs.backtests.work.resume_all", **timing})


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("flows", "0004_one_document"),
        ("runs", "0008_accepted_outputs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Backtest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "base_version",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="The number of the live version that it was compared with.",
                        null=True,
                    ),
                ),
                ("document", flows.json_field.OrderedJSONField(help_text="The definition that is judged by.")),
                ("digest", models.CharField(help_text="Of that definition.", max_length=64)),
                (
                    "leaves_out_each",
                    models.BooleanField(
                        default=False,
                        help_text="Each audit of the definition is left out in turn; only its audits have figures.",
                    ),
                ),
                ("run_ids", models.JSONField(blank=True, default=list, help_text="Its runs, the newest first.")),
                ("run_count", models.PositiveIntegerField(default=0, help_text="How many these are.")),
                (
                    "query",
                    models.TextField(blank=True, default="", help_text="The filters of the list, as in its address."),
                ),
                ("limit", models.PositiveIntegerField(help_text="How many runs it may judge.")),
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
                ("position", models.PositiveIntegerField(default=0, help_text="How many of its runs are behind.")),
                (
                    "revision",
                    models.PositiveIntegerField(default=0, help_text="Grows with every change that a page shows."),
                ),
                (
                    "totals",
                    models.JSONField(
                        blank=True, default=dict, help_text="What was found, as ``runs.backtests.totals`` says."
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                (
                    "heartbeat_at",
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
                (
                    "flow",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="backtests",
                        to="flows.flow",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        blank=True,
                        help_text="The version that is judged by; none for a draft.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="flows.flowversion",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="BacktestRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("same", "same"),
                            ("sooner", "sooner"),
                            ("refused", "refused"),
                            ("beyond", "beyond"),
                            ("not_reproducible", "not_reproducible"),
                            ("removed", "removed"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True, default="", help_text="Why history can't say more: a code.", max_length=20
                    ),
                ),
                ("sentence", models.TextField(blank=True, default="", help_text="The same in words.")),
                ("step", models.PositiveIntegerField(blank=True, help_text="The first one that differs.", null=True)),
                ("attempt", models.PositiveIntegerField(blank=True, help_text="Of that step.", null=True)),
                ("ended", models.CharField(blank=True, default="", help_text="How the run ended.", max_length=9)),
                (
                    "ends",
                    models.CharField(
                        blank=True, default="", help_text="How it would end; empty if unknown.", max_length=9
                    ),
                ),
                (
                    "is_hypothetical",
                    models.BooleanField(default=False, help_text="Its later outputs answer other texts."),
                ),
                ("attempts_saved", models.PositiveIntegerField(default=0)),
                ("tokens_saved", models.PositiveBigIntegerField(default=0)),
                (
                    "cost_saved",
                    models.DecimalField(blank=True, decimal_places=8, help_text="USD.", max_digits=16, null=True),
                ),
                (
                    "unpriced",
                    models.PositiveIntegerField(default=0, help_text="Attempts saved whose price is unknown."),
                ),
                (
                    "further_calls",
                    models.PositiveIntegerField(default=0, help_text="Calls that it would make at least."),
                ),
                (
                    "gone",
                    models.JSONField(
                        blank=True, default=list, help_text="Issues that the attempts would no longer have."
                    ),
                ),
                (
                    "new",
                    models.JSONField(
                        blank=True, default=list, help_text="Issues that only the candidate finds in them."
                    ),
                ),
                (
                    "backtest",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="runs.backtest",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.run"),
                ),
            ],
            options={
                "ordering": ["backtest", "kind", "-run_id"],
                "default_permissions": (),
            },
        ),
        migrations.AddIndex(
            model_name="backtest",
            index=models.Index(fields=["flow", "leaves_out_each", "-id"], name="backtest_by_flow"),
        ),
        migrations.AddIndex(
            model_name="backtest",
            index=models.Index(fields=["state", "heartbeat_at"], name="backtest_by_state"),
        ),
        migrations.AddIndex(
            model_name="backtest",
            index=models.Index(
                condition=models.Q(("state", "done")), fields=["digest", "-id"], name="backtest_by_digest"
            ),
        ),
        migrations.AddConstraint(
            model_name="backtest",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["waiting", "working", "done", "stopped", "failed"])),
                name="backtest_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="backtestrun",
            constraint=models.UniqueConstraint(fields=("backtest", "kind", "run"), name="backtest_run_once"),
        ),
        migrations.RunPython(create_schedule, migrations.RunPython.noop),
    ]
