"""What the editor tells while one types: checks of JSON, schemas and expressions, without storing anything."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import URLPattern


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    return []
