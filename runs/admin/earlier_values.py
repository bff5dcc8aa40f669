"""What the variables of expressions held in an earlier run: real values to write against."""

from __future__ import annotations

from django.urls import URLPattern

from flows.admin.flow_admin import FlowAdmin


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    return []
