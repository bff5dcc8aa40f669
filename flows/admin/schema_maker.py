"""Schemas for people who don't write JSON Schema: from an example, from a registered type, field by field."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import URLPattern


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    return []
