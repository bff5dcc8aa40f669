"""Cancelling and starting again many runs at once."""

from __future__ import annotations

from django.urls import URLPattern

urls: list[URLPattern] = []
