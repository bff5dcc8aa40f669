"""Versions of flows, with how many runs each has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from flows.admin.version_admin import FlowVersionAdmin, RunCount
from flows.models import FlowVersion
from runs.models import Run
from runs.models.run import ENDED, RunStatus


class RunCountingVersionAdmin(FlowVersionAdmin):
    """``FlowVersionAdmin`` with runs: how many each version has, and how many of them succeeded."""

    list_display = [*FlowVersionAdmin.list_display, "run_count"]
    fields = [*FlowVersionAdmin.fields[:-1], "run_count", "pass_rate", FlowVersionAdmin.fields[-1]]

    def get_queryset(self, request: HttpRequest) -> QuerySet[FlowVersion]:
        """Versions, each with the number of its runs; counted for those alone that are shown."""
        runs = Run.objects.filter(version=OuterRef("pk")).order_by().values("version")
        count = Subquery(runs.annotate(count=Count("*")).values("count"))
        return super().get_queryset(request).annotate(run_count=Coalesce(count, 0))

    @admin.display(description="Runs")
    def run_count(self, version: Any) -> int:
        """How many runs are pinned to the version."""
        return version.run_count  # type: ignore[no-any-return]  # annotated

    @admin.display(description="Pass rate")
    def pass_rate(self, version: FlowVersion) -> str:
        """How many of the runs that ended succeeded."""
        runs = self.count_runs([version]).get(version.pk, RunCount())
        return f"{runs.pass_rate} ({runs.succeeded} of {runs.ended} that ended)" if runs.ended else runs.pass_rate

    def count_runs(self, versions: Sequence[FlowVersion]) -> Mapping[int, RunCount]:
        """The runs of each version, by its key; all counted in one pass over an index."""
        counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
        rows = Run.objects.filter(version__in=[version.pk for version in versions]).order_by()
        for key, status, count in rows.values_list("version", "status").annotate(count=Count("*")):
            counts[key][status] = count
        return {version.pk: _sum_up(counts[version.pk]) for version in versions}


def _sum_up(by_status: Mapping[str, int]) -> RunCount:
    ended = sum(by_status.get(status, 0) for status in ENDED if status != RunStatus.CANCELLED)
    return RunCount(sum(by_status.values()), ended, by_status.get(RunStatus.SUCCEEDED, 0))
