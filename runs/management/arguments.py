"""Arguments of commands: flows by name, and days."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import date

from django.core.management.base import CommandError

from flows.models import Flow


def fetch_flow(name: str | None) -> Flow | None:
    """The flow of that name; None if none is given. Raises ``CommandError`` if there is no such flow."""
    if name is None:
        return None
    flow = Flow.objects.filter(name=name).first()
    if flow is None:
        raise CommandError(f"There is no flow “{name}”.")
    return flow


def parse_day(text: str) -> date:
    """A day as ``2026-11-21``."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"“{text[:40]}” is no day: write it as 2026-11-21.") from None
