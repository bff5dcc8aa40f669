"""Versions of flows, with how many runs each has."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from flows.admin.version_admin import FlowVersionAdmin
from flows.models import FlowVersion
from runs.models import Run


class RunCountingVersionAdmin(FlowVersionAdmin):
    """``FlowVersionAdmin`` with a column for runs."""

    list_display = [*FlowVersionAdmin.list_display, "run_count"]
    fields = [*FlowVersionAdmin.fields[:-1], "run_count", FlowVersionAdmin.fields[-1]]

    def get_queryset(self, request: HttpRequest) -> QuerySet[FlowVersion]:
        """Versions, each with the number of its runs; counted for those alone that are shown."""
        runs = Run.objects.filter(version=OuterRef("pk")).order_by().values("version")
        count = Subquery(runs.annotate(count=Count("pk")).values("count"))
        return super().get_queryset(request).annotate(run_count=Coalesce(count, 0))

    @admin.display(description="Runs")
    def run_count(self, version: Any) -> int:
        """How many runs are pinned to the version."""
        return version.run_count  # type: ignore[no-any-return]  # annotated
