"""The app that runs flows and keeps what happened."""

from django.apps import AppConfig
from django.db.models.signals import pre_migrate
from django.urls import register_converter
from django.urls.converters import IntConverter


class RowNumberConverter(IntConverter):
    """``<number:run_id>`` in addresses of pages: the number of a row, as large as every database takes it."""

    regex = "[0-9]{1,18}"


register_converter(RowNumberConverter, "number")


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Run history"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and let the audit log watch rows: both need models, which exist from now on."""
        from runs import checks  # noqa: F401
        from runs.audit_log import sign_ins, signals  # noqa: F401
        from runs.backup import refuse_older_database

        pre_migrate.connect(refuse_older_database, sender=self)
