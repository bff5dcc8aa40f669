"""Filters of the list of runs that users keep under a name."""

from __future__ import annotations

from django.urls import URLPattern

urls: list[URLPattern] = []
