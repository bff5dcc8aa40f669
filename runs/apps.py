"""The app that runs flows and keeps what happened."""

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Run history"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and let the trail watch rows: both need models, which exist from now on."""
        from runs.checks import register_checks
        from runs.older_databases import refuse_older_database
        from runs.trail import ended_sessions, row_changes, sign_ins

        register_checks()
        pre_migrate.connect(refuse_older_database, sender=self)
        row_changes.connect()
        ended_sessions.connect()
        sign_ins.connect()
