"""Daily issues by step, with the numbers of their first and last run, which lead to examples."""

from __future__ import annotations

from typing import ClassVar

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_LACKING = """
    SELECT 1 FROM runs_purgedday p WHERE p.flow_id = runs_dailyissues.flow_id AND p.day = runs_dailyissues.day
"""
# Days that lack runs since retention deleted them keep their rows. The only step whose audit, or whose code, was
# counted on that day is theirs.
_FIND_STEPS = f"""
    UPDATE runs_dailyissues SET step_runs = runs, step = COALESCE((
        SELECT MIN(a.step) FROM runs_dailyaudits a
        WHERE a.flow_id = runs_dailyissues.flow_id AND a.day = runs_dailyissues.day
        AND a.version_id = runs_dailyissues.version_id AND a.is_simulated = runs_dailyissues.is_simulated
        AND a.audit = runs_dailyissues.audit AND (a.audit <> '' OR a.code = runs_dailyissues.code)
        HAVING COUNT(DISTINCT a.step) = 1
    ), 0)
    WHERE EXISTS ({_LACKING})
"""  # noqa: S608  # fixed texts
_DELETE = f"DELETE FROM runs_dailyissues WHERE NOT EXISTS ({_LACKING})"  # noqa: S608  # as above
_RECOUNT = """
    INSERT INTO runs_dailyissues (
        flow_id, day, version_id, is_simulated, step, code, audit, severity,
        issues, runs, step_runs, first_run, last_run
    )
    SELECT flow_id, day, version_id, is_simulated, step, code, audit, severity,
        SUM(issues), SUM(CASE WHEN step = first_step THEN 1 ELSE 0 END), COUNT(*), MIN(run_id), MAX(run_id)
    FROM (
        SELECT r.flow_id, {day} AS day, r.version_id, r.is_simulated, s."index" AS step, i.code, i.audit, i.severity,
            r.id AS run_id, COUNT(*) AS issues,
            MIN(s."index") OVER (PARTITION BY r.id, i.code, i.audit, i.severity) AS first_step
        FROM runs_run r
        JOIN runs_step s ON s.run_id = r.id
        JOIN runs_attempt a ON a.step_id = s.id
        JOIN runs_issue i ON i.attempt_id = a.id
        WHERE r.is_counted AND r.ended_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM runs_purgedday p WHERE p.flow_id = r.flow_id AND p.day = {day})
        GROUP BY r.id, s."index", i.code, i.audit, i.severity
    ) counted
    GROUP BY flow_id, day, version_id, is_simulated, step, code, audit, severity
"""


def count_again(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Count the issues of all stored runs by step."""
    is_postgresql = editor.connection.vendor == "postgresql"
    day = "CAST(r.ended_at AT TIME ZONE 'UTC' AS date)" if is_postgresql else "date(r.ended_at)"
    with editor.connection.cursor() as cursor:
        cursor.execute(_FIND_STEPS)
        cursor.execute(_DELETE)
        cursor.execute(_RECOUNT.format(day=day))


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runs", "0006_audit_entries_and_fixed_bulk_actions")]

    operations: ClassVar = [
        migrations.RemoveConstraint("dailyissues", "daily_issues_once"),
        migrations.AlterModelOptions(
            "dailyissues",
            options={"ordering": ["flow", "day", "version", "step", "code"], "verbose_name_plural": "daily issues"},
        ),
        migrations.AddField(
            "dailyissues",
            "step",
            models.PositiveIntegerField(
                default=0,
                db_default=0,
                help_text="Its position, from 1; 0 where rows of before don't say which of several.",
            ),
        ),
        migrations.AddField(
            "dailyissues",
            "step_runs",
            models.PositiveBigIntegerField(
                default=0, db_default=0, help_text="Runs in which this step raised it at least once."
            ),
        ),
        migrations.AddField(
            "dailyissues",
            "first_run",
            models.PositiveBigIntegerField(null=True, help_text="The lowest number of these runs."),
        ),
        migrations.AddField(
            "dailyissues",
            "last_run",
            models.PositiveBigIntegerField(null=True, help_text="The highest number of these runs."),
        ),
        migrations.AlterField(
            "dailyissues",
            "runs",
            models.PositiveBigIntegerField(
                default=0,
                help_text="Runs in which it was raised at least once, each counted at the first of its steps that did.",
            ),
        ),
        migrations.AddConstraint(
            "dailyissues",
            models.UniqueConstraint(
                fields=["flow", "day", "version", "is_simulated", "step", "code", "audit", "severity"],
                name="daily_issues_once",
            ),
        ),
        migrations.AddIndex(
            "dailyissues",
            models.Index(fields=["flow", "audit", "code", "severity", "step", "day"], name="daily_issues_by_kind"),
        ),
        # Last: PostgreSQL alters no table whose new rows wait for their keys to be checked.
        migrations.RunPython(count_again, migrations.RunPython.noop),
    ]
