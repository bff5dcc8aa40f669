"""How long expressions and plug-ins of a step that is tried are waited for: a web process waits with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings

from flows.engine.time_limits import Deadline, Patience

LONGEST_PLUGIN = 10.0
"""Seconds that one call of a plug-in may take, unless ``TOOLFLOW_PLUGIN_TIMEOUT`` is less."""
LONGEST_TRY = 10
"""Seconds that all expressions and plug-ins of one try may take together; what is left then is broken off."""


def begin_patience() -> Patience:
    """The patience of a try that begins now."""
    end = datetime.now(UTC) + timedelta(seconds=LONGEST_TRY)
    deadline = Deadline(end, "Trying the step", f"{LONGEST_TRY} seconds", None)
    return Patience(min(settings.TOOLFLOW_PLUGIN_TIMEOUT, LONGEST_PLUGIN), deadline)
