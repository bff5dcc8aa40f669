"""Pages of flows: how their runs went, by version and model, and what their audits cost."""

from __future__ import annotations

from django.urls import URLPattern

urls: list[URLPattern] = []
