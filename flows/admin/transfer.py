"""Flows as files: download and upload."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import URLPattern


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    return []
