"""The runs of a list as files."""

from __future__ import annotations

from django.urls import URLPattern

urls: list[URLPattern] = []
