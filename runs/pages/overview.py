"""The home page: what runs now, what failed lately, today against the usual."""

from __future__ import annotations

from django.urls import URLPattern, path
from django.views.generic import RedirectView

urls: list[URLPattern] = [
    path("", RedirectView.as_view(pattern_name="runs:list"), name="home"),
]
