"""Two runs side by side."""

from __future__ import annotations

from django.urls import URLPattern

urls: list[URLPattern] = []
