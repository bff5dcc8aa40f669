"""The app that runs flows and keeps what happened."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Run history"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and let the trail watch rows: both need models, which exist from now on."""
        from runs.checks import register_checks
        from runs.trail import ended_sessions, row_changes, sign_ins

        register_checks()
        row_changes.connect()
        ended_sessions.connect()
        sign_ins.connect()
