"""Statistics of flows and of everything: sums of daily rows, never of the runs themselves."""

from __future__ import annotations

from datetime import UTC, date

from django.http import Http404
from django.urls import URLPattern, path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow, FlowVersion
from runs.api.access import SEE_RUNS
from runs.api.flow_statistics import FlowFigures
from runs.api.overview_schema import OverviewSerializer
from runs.api.present_state import describe_now
from runs.api.problems import InvalidQuery
from runs.api.schema_parts import problem_responses
from runs.api.statistics_documents import StatisticsWriter
from runs.api.statistics_parameters import (
    AUDIT_PARAMETERS,
    FLOW_PARAMETERS,
    OVERVIEW_PARAMETERS,
    USAGE_PARAMETERS,
    name_parameters,
)
from runs.api.statistics_query import StatisticsQuery
from runs.api.statistics_schema import AuditStatisticsSerializer, FlowStatisticsSerializer, UsageStatisticsSerializer
from runs.api.view import ApiView
from runs.statistics.figures import (
    FLOW,
    GROUPS,
    MAX_AUDITS,
    VERSION,
    Scope,
    compare_today,
    fetch_audits,
    fetch_steps,
    fetch_usage,
)

MOST_USAGE = 1_000
"""Items of an answer about usage."""


class FlowStatisticsView(ApiView):
    """How the runs of a flow went."""

    needs = {"GET": SEE_RUNS}
    parameters = {"GET": name_parameters(FLOW_PARAMETERS)}

    @extend_schema(
        operation_id="getFlowStatistics",
        tags=["Statistics"],
        summary="Read how the runs of a flow went",
        description="Runs that ended in a span of days: rates, durations, tokens and cost; by version, model, step and "
        "day. The same figures as on the page of the flow.",
        parameters=FLOW_PARAMETERS,
        responses={200: FlowStatisticsSerializer, **problem_responses(404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The figures of a flow."""
        asked = StatisticsQuery(request.query_params, _today())
        flow = _find_flow(name)
        versions = list(FlowVersion.objects.filter(flow=flow).only("flow", "number").order_by("-number"))
        first, last = asked.read_span()
        version = asked.choose_version(flow, versions)
        model = asked.read_text("model")
        is_simulated = asked.read_flag("simulated")
        group_by = asked.read_choice("group_by", ("day", "week", "none"), "day")
        asked.finish()
        scope = Scope(first, last, is_simulated, flow, version.pk if version else None)
        figures = FlowFigures(flow, scope, model, {version.pk: version.number for version in versions})
        head = {
            "flow": flow.name,
            "from": first,
            "to": last,
            "version": version.number if version else None,
            "model": model,
            "is_simulated": is_simulated,
            "group_by": group_by,
        }
        return Response(head | figures.write(group_by))


class AuditStatisticsView(ApiView):
    """How often audits of a flow fired."""

    needs = {"GET": SEE_RUNS}
    parameters = {"GET": name_parameters(AUDIT_PARAMETERS)}

    @extend_schema(
        operation_id="getFlowAuditStatistics",
        tags=["Statistics"],
        summary="Read how often the audits of a flow fired, and what their retries cost",
        description="Each audit by step, the 100 that come first; what ToolFlow itself raised by code. If several "
        "fired in one attempt, the next attempt counts as the retry of each: their costs may add up to more than all "
        "retries cost.",
        parameters=AUDIT_PARAMETERS,
        responses={200: AuditStatisticsSerializer, **problem_responses(404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The figures of the audits of a flow."""
        asked = StatisticsQuery(request.query_params, _today())
        flow = _find_flow(name)
        first, last = asked.read_span()
        version = asked.choose_version(flow)
        is_simulated = asked.read_flag("simulated")
        sort = asked.read_choice("sort", ("fired", "cost"), "fired")
        asked.finish()
        scope = Scope(first, last, is_simulated, flow, version.pk if version else None)
        found = fetch_audits(scope, fetch_steps(scope), by_cost=sort == "cost", limit=MAX_AUDITS + 1)
        writer = StatisticsWriter(is_simulated=is_simulated)
        return Response(
            {
                "flow": flow.name,
                "from": first,
                "to": last,
                "version": version.number if version else None,
                "is_simulated": is_simulated,
                "items": [writer.write_audit(sums) for sums in found[:MAX_AUDITS]],
                "is_truncated": len(found) > MAX_AUDITS,
            }
        )


class UsageStatisticsView(ApiView):
    """What flows used."""

    needs = {"GET": SEE_RUNS}
    parameters = {"GET": name_parameters(USAGE_PARAMETERS)}

    @extend_schema(
        operation_id="getUsage",
        tags=["Statistics"],
        summary="Read the tokens and cost of flows by flow, version, model and day",
        description=f"Usage of the runs that ended in a span of days. An answer has at most {MOST_USAGE:,} items; what "
        "makes more is refused with 400: ask for fewer days, filter, or group by less.",
        parameters=USAGE_PARAMETERS,
        responses={200: UsageStatisticsSerializer},
    )
    def get(self, request: Request) -> Response:
        """The usage of each group, in the order of flow, version, model and day."""
        asked = StatisticsQuery(request.query_params, _today())
        first, last = asked.read_span()
        by = asked.read_choices("group_by", tuple(GROUPS), FLOW)
        model = asked.read_text("model")
        is_simulated = asked.read_flag("simulated")
        flow = asked.read_flow()
        version = asked.choose_version(flow)
        asked.finish()
        scope = Scope(first, last, is_simulated, flow, version.pk if version else None, model)
        groups = fetch_usage(scope, by, limit=MOST_USAGE + 1)
        if len(groups) > MOST_USAGE:
            sentence = f"This makes more than {MOST_USAGE:,} items: ask for fewer days, filter, or group by less."
            raise InvalidQuery([Problem("group_by", sentence)])
        keys = frozenset((*by, FLOW) if VERSION in by else by)
        writer = StatisticsWriter(is_simulated=is_simulated)
        return Response(
            {
                "from": first,
                "to": last,
                "flow": flow.name if flow else None,
                "version": version.number if version else None,
                "model": model,
                "is_simulated": is_simulated,
                "group_by": [name for name in GROUPS if name in keys],
                "items": [writer.write_usage(group, keys) for group in groups],
            }
        )


class OverviewView(ApiView):
    """What goes on."""

    needs = {"GET": SEE_RUNS}
    parameters = {"GET": name_parameters(OVERVIEW_PARAMETERS)}

    @extend_schema(
        operation_id="getOverview",
        tags=["Statistics"],
        summary="Read what goes on now, and today beside the 7-day median",
        description="Runs under way, the queue and its workers; and the runs that ended today so far beside the "
        "median of the 7 days before. Days are those of UTC.",
        parameters=OVERVIEW_PARAMETERS,
        responses={200: OverviewSerializer},
    )
    def get(self, request: Request) -> Response:
        """The figures of this moment and of today."""
        now = timezone.now()
        day = now.astimezone(UTC).date()
        asked = StatisticsQuery(request.query_params, day)
        is_simulated = asked.read_flag("simulated")
        asked.finish()
        today = compare_today(day, is_simulated=is_simulated)
        writer = StatisticsWriter(is_simulated=is_simulated)
        return Response(
            {
                "now": now,
                **describe_now(),
                "is_simulated": is_simulated,
                **writer.write_today(today),
            }
        )


def _find_flow(name: str) -> Flow:
    flow = Flow.objects.filter(name=name).only("pk", "name", "live_version").first()
    if flow is None:
        raise Http404
    return flow


def _today() -> date:
    return timezone.now().astimezone(UTC).date()


urls: list[URLPattern] = [
    path("flows/<slug:name>/statistics", FlowStatisticsView.as_view(), name="flow-statistics"),
    path("flows/<slug:name>/statistics/audits", AuditStatisticsView.as_view(), name="flow-statistics-audits"),
    path("statistics/usage", UsageStatisticsView.as_view(), name="statistics-usage"),
    path("statistics/overview", OverviewView.as_view(), name="statistics-overview"),
]
