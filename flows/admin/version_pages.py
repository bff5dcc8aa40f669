"""The versions of a flow: their list, the difference of any two, and the way back to an earlier one."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import URLPattern


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    return []
