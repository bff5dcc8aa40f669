"""The app that defines flows."""

from django.apps import AppConfig
from django.conf import settings


class FlowsConfig(AppConfig):
    name = "flows"
    verbose_name = "Definitions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Load the plug-ins; ``manage.py check`` reports what fails, without a traceback here."""
        from flows import checks
        from flows.engine.errors import PluginError
        from flows.engine.plugins import load_plugins

        try:
            load_plugins(settings.TOOLFLOW_PLUGINS)
        except PluginError as error:
            checks.plugin_errors.append(str(error))
