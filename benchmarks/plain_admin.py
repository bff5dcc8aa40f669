"""The stock changelist of Django's admin over the same rows, as anybody would register it: what lists are held against.

Used as ``ROOT_URLCONF`` by ``page_settings``.
"""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from runs.models import Run


class PlainRunAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # as in any project
    list_display = (
        "id",
        "flow",
        "version",
        "status",
        "attempt_count",
        "total_tokens",
        "cost",
        "started_by",
        "created_at",
    )
    list_filter = ("status", "flow", "created_at")
    list_select_related = ("flow", "version__flow", "started_by")
    search_fields = ("input", "end_sentence")
    list_per_page = 50


site = admin.AdminSite("plain")
site.register(Run, PlainRunAdmin)

urlpatterns = [
    path("plain/", site.urls),
    path("", include("toolflow_site.urls")),
]
