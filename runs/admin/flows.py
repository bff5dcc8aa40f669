"""Flows and their versions in the admin, with what is known of their runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import URLPattern, reverse

from flows.admin.flow_admin import FlowAdmin
from flows.admin.posted_json import PostedError
from flows.admin.version_admin import FlowVersionAdmin, RunCount
from flows.engine.errors import SpecError
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from flows.providers import check_flow
from flows.publishing import complete_spec
from runs.admin import earlier_values, judge_panel, try_panel
from runs.backtests.predictions import load_prediction
from runs.backtests.requests import NoRunsError, TooManyBacktestsError, request_backtest
from runs.models import Run
from runs.models.run import ENDED, RunStatus


class RunningFlowAdmin(FlowAdmin):
    """The flow editor, with values of earlier runs to write against, and a try of a step."""

    def get_urls(self) -> list[URLPattern]:
        """The editor's addresses and those that read runs."""
        panels = (earlier_values, judge_panel, try_panel)
        return [*(one for panel in panels for one in panel.list_urls(self)), *super().get_urls()]

    def load_prediction(self, request: HttpRequest, version: FlowVersion) -> dict[str, Any] | None:
        """What a backtest of the version said; nothing for those who may not see runs."""
        return load_prediction(version) if _may_see_runs(request) else None

    def backtest_draft(self, request: HttpRequest, flow: Flow, spec: FlowSpec) -> str:
        """Request a backtest over the last runs. Raises ``PostedError`` and ``SpecError``."""
        if not request.user.has_perms(["runs.view_run", "runs.add_run"]):
            raise PermissionDenied("You may not start backtests: your account lacks “runs.add_run”.")
        spec = complete_spec(spec)
        if problems := check_flow(spec):
            raise SpecError(problems)
        user: Any = request.user
        try:
            backtest = request_backtest(flow=flow, candidate=spec, asked_by=user)
        except (NoRunsError, TooManyBacktestsError) as error:
            raise PostedError(str(error)) from None
        return reverse("runs:backtest", args=[backtest.pk])


class RunCountingVersionAdmin(FlowVersionAdmin):
    """``FlowVersionAdmin`` with runs: how many each version has, and how many of them succeeded."""

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """The columns; that of runs for those who may see runs."""
        return [*FlowVersionAdmin.list_display, *(["run_count"] if _may_see_runs(request) else [])]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """The fields of a version's page; those of runs for those who may see runs."""
        *facts, definition = FlowVersionAdmin.fields
        return [*facts, *(["run_count", "pass_rate"] if _may_see_runs(request) else []), definition]

    def get_queryset(self, request: HttpRequest) -> QuerySet[FlowVersion]:
        """Versions, each with the number of its runs; counted for those alone that are shown."""
        if not _may_see_runs(request):
            return super().get_queryset(request).annotate(run_count=Value(None, output_field=IntegerField()))
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
        runs = _count_runs([version])[version.pk]
        return f"{runs.pass_rate} ({runs.succeeded} of {runs.ended} that ended)" if runs.ended else runs.pass_rate

    def count_runs(self, request: HttpRequest, versions: Sequence[FlowVersion]) -> Mapping[int, RunCount]:
        """The runs of each version, by its key; nothing for those who may not see runs."""
        return _count_runs(versions) if _may_see_runs(request) else {}


def _may_see_runs(request: HttpRequest) -> bool:
    return request.user.has_perm("runs.view_run")


def _count_runs(versions: Sequence[FlowVersion]) -> Mapping[int, RunCount]:
    """All counted in one pass over an index."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    rows = Run.objects.filter(version__in=[version.pk for version in versions]).order_by()
    for key, status, count in rows.values_list("version", "status").annotate(count=Count("*")):
        counts[key][status] = count
    return {version.pk: _sum_up(counts[version.pk]) for version in versions}


def _sum_up(by_status: Mapping[str, int]) -> RunCount:
    ended = sum(by_status.get(status, 0) for status in ENDED if status != RunStatus.CANCELLED)
    return RunCount(sum(by_status.values()), ended, by_status.get(RunStatus.SUCCEEDED, 0))
