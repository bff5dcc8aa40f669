"""How long something has lasted that goes on."""

from __future__ import annotations

from runs.pages.figures import format_duration


def format_elapsed(seconds: float) -> str:
    """Whole seconds, then as other durations: ``12 s``, ``1 min 08 s``. ``live_updates.js`` counts on in this form."""
    seconds = max(seconds, 0.0)
    return f"{int(seconds)} s" if seconds < 60 else format_duration(int(seconds))
