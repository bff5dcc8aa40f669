"""What commands share: flows by name, and texts that a terminal must not obey."""

from __future__ import annotations

from django.core.management.base import CommandError

from flows.models import Flow


def fetch_flow(name: str, *, returncode: int = 1) -> Flow:
    """The flow of that name, with its live version. Raises ``CommandError``, which lists the names."""
    flow = Flow.objects.select_related("live_version").filter(name=name).first()
    if flow is None:
        names = ", ".join(Flow.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise CommandError(f"No flow is called “{name}”. Flows: {names}.", returncode=returncode)
    return flow


def escape_controls(text: str) -> str:
    """Text of a file or a model without control characters."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
