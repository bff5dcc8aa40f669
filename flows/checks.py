"""System checks of what flows need of Python: plug-ins that don't load, and names that are not registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, transaction

from flows.models import Flow
from flows.plugin_use import find_missing_names

plugin_errors: list[str] = []
"""What went wrong when plug-ins were loaded at start-up, a sentence each."""

MAX_FLOWS = 10
"""Flows that are warned of one by one; of more the number is."""


# The tag of what is ours: commands that serve no pages check nothing else.
@register("toolflow")
def check_plugins(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Report plug-in modules that could not be loaded."""
    return [
        Error(message, hint="Fix the module, or remove it from TOOLFLOW_PLUGINS.", id="flows.E001")
        for message in plugin_errors
    ]


@register(Tags.database)
def check_plugin_names(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Report flows whose live version names a plug-in that is not registered: their runs would wait and then fail.

    Asks the database, and so runs with ``manage.py check --database default`` and with ``manage.py migrate`` only.
    """
    if "default" not in (databases or ()):
        return []
    try:
        with transaction.atomic(using="default"):
            flows = list(Flow.objects.runnable().select_related("live_version"))
    except DatabaseError:
        # A database that is being set up has no flows yet, or not all of their columns.
        return []
    lives = [(flow, flow.live_version) for flow in flows if flow.live_version is not None]
    found = [(flow, live, missing) for flow, live in lives if (missing := find_missing_names(live))]
    warnings = [
        Warning(
            f"Flow “{flow}” ({flow.name}): its live version {live.number} uses "
            f"{', '.join(dict.fromkeys(f'{use.what} (step {use.step})' for use in missing))}, "
            "which no plug-in registers.",
            hint="Name the module that registers it in TOOLFLOW_PLUGINS, or make a version live that does not use it.",
            id="flows.W001",
        )
        for flow, live, missing in found[:MAX_FLOWS]
    ]
    if len(found) > MAX_FLOWS:
        warnings.append(
            Warning(
                f"{len(found) - MAX_FLOWS:,} more flows use names that no plug-in registers.",
                hint="The page “Plug-ins” of the admin lists them all.",
                id="flows.W001",
            )
        )
    return list(warnings)
