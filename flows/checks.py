"""System checks of what only a developer can mend: plug-ins that don't load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register

plugin_errors: list[str] = []
"""What went wrong when plug-ins were loaded at start-up, a sentence each."""


@register()
def check_plugins(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Report plug-in modules that could not be loaded."""
    return [
        Error(
            message,
            hint="Mend the module, or take it out of TOOLFLOW_PLUGINS.",
            id="flows.E001",
        )
        for message in plugin_errors
    ]
