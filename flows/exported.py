"""Flows that leave as files: whoever has to know of it listens."""

from __future__ import annotations

from collections.abc import Sequence

from django.dispatch import Signal

from flows.models import FlowVersion

flows_exported = Signal()
"""Sent with ``versions``, those that were written into files for somebody."""


def tell_of_export(versions: Sequence[FlowVersion]) -> None:
    """Say that these versions, whose flows must be loaded, were written into files; nothing if there are none."""
    if versions:
        flows_exported.send(sender=FlowVersion, versions=versions)
