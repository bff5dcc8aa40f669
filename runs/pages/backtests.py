"""Backtests: the list of a flow, requesting one, and the views of one.

While a backtest is in progress its page shows how far it is; the rest comes once, when it has ended.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from flows.engine.errors import SpecError
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.backtests.requests import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    NoRunsError,
    TooManyBacktestsError,
    request_backtest,
    stop_backtest,
)
from runs.backtests.totals import Totals, describe_totals
from runs.filter_fields import parse_run_number
from runs.formatting import format_count
from runs.models import Backtest
from runs.pages.access import get_user, refuse, require_permission
from runs.pages.addresses import read_exact_filters
from runs.pages.backtest_page import load_backtest_page, name_candidate
from runs.pages.bulk import BADGES, list_filter_words
from runs.pages.flow_version import fetch_flow

MAX_LISTED = 50
"""Backtests that the list of them shows."""
NOT_STARTED = "The backtest was not started"


# ---------------------------------------------------------------------------------------------------------------
# Requesting


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.view_run")
def show_backtests(request: HttpRequest, flow_name: str) -> HttpResponseBase:
    """GET: the backtests of a flow, and a form for a new one. POST: request it.

    The address may have ``candidate``, the number of a version, and the filters of a list of runs.
    """
    flow = fetch_flow(flow_name)
    if request.method == "POST":
        return _request(request, flow)
    filters, problems = read_exact_filters(request.GET, others=("candidate",))
    rows = Backtest.objects.listed().filter(flow=flow).select_related("version", "asked_by").defer("version__spec")
    versions = list(flow.versions.defer("spec"))
    wanted = request.GET.get("candidate", "")
    query = "" if problems else filters.to_query("flow") if "version" not in filters.values else filters.to_query()
    context = {
        "flow": flow,
        "rows": [
            (one, BADGES[one.state], name_candidate(one), describe_totals(Totals.from_document(one.totals)))
            for one in rows[:MAX_LISTED]
        ],
        "versions": versions,
        "candidate": next((one.number for one in versions if str(one.number) == wanted), versions[0].number)
        if versions
        else None,
        "filters": query,
        "filter_words": list_filter_words(query),
        "default_limit": DEFAULT_LIMIT,
        "max_limit": MAX_LIMIT,
        "problems": problems,
    }
    return render(request, "runs/backtests.html", context)


@require_permission("runs.add_run")
def _request(request: HttpRequest, flow: Flow) -> HttpResponseBase:
    number = parse_run_number(request.POST.get("candidate", ""))
    limit = parse_run_number(request.POST.get("limit", "").strip() or str(DEFAULT_LIMIT))
    filters, problems = read_exact_filters(QueryDict(request.POST.get("filters", "")))
    version = flow.versions.filter(number=number).first() if number is not None and number < 2**31 else None
    if version is None:
        problems = (*problems, "This flow has no such version. Choose another.")
    if limit is None or not 1 <= limit <= MAX_LIMIT:
        problems = (*problems, f"Enter a number of runs from 1 to {format_count(MAX_LIMIT)}.")
    if filters.values.get("flow", flow) != flow:
        problems = (*problems, "The filters name another flow.")
    if problems or version is None or limit is None:
        return refuse(request, NOT_STARTED, problems=problems, back_url=_list_url(flow))
    return start_backtest(request, flow, version, filters=filters, limit=limit)


def start_backtest(request: HttpRequest, flow: Flow, candidate: FlowSpec | FlowVersion, **options: Any) -> HttpResponse:
    """Request a backtest and go to its page, or say why it was not started."""
    try:
        backtest = request_backtest(flow=flow, candidate=candidate, asked_by=get_user(request), **options)
    except (NoRunsError, TooManyBacktestsError, SpecError) as error:
        return refuse(request, NOT_STARTED, reason=str(error), back_url=_list_url(flow), status=409)
    return redirect("runs:backtest", backtest_id=backtest.pk)


def _list_url(flow: Flow) -> str:
    return reverse("runs:backtests", args=[flow.name])


@require_POST
@require_permission("runs.view_run", "runs.add_run")
def leave_out_each(request: HttpRequest, flow_name: str, number: int) -> HttpResponse:
    """Work out what leaving out each audit of a version would change in its own runs."""
    flow = fetch_flow(flow_name)
    version = get_object_or_404(flow.versions, number=number)
    return start_backtest(request, flow, version, leaves_out_each=True)


@require_POST
@require_permission("runs.view_run", "runs.add_run")
def stop(request: HttpRequest, backtest_id: int) -> HttpResponse:
    """Stop a backtest; one that has ended stays as it is."""
    stop_backtest(get_object_or_404(Backtest, pk=backtest_id))
    return redirect("runs:backtest", backtest_id=backtest_id)


# ---------------------------------------------------------------------------------------------------------------
# One backtest


@require_safe
@require_permission("runs.view_run")
def show_backtest(request: HttpRequest, backtest_id: int) -> HttpResponse:
    """One backtest; ``?kind=`` lists the runs that differ in one way, ``?before=`` those before a run.

    One that leaves out each audit is a column of the flow's page.
    """
    backtest = _load(backtest_id)
    if backtest.leaves_out_each and backtest.version is not None:
        is_live = backtest.version_id == backtest.flow.live_version_id
        query = "" if is_live else f"?version={backtest.version.number}"
        return redirect(f"{reverse('runs:flow', args=[backtest.flow.name])}{query}#audits")
    return render(request, "runs/backtest.html", {**load_backtest_page(backtest, request.GET), "is_update": False})


@require_safe
@require_permission("runs.view_run")
def show_changes(request: HttpRequest, backtest_id: int) -> HttpResponse:
    """What a page with the revision ``seen`` has to change. 204 if nothing has."""
    backtest = _load(backtest_id)
    if request.GET.get("seen") == str(backtest.revision):
        return HttpResponse(status=204)
    return render(request, "runs/backtest.html", {**load_backtest_page(backtest, {}), "is_update": True})


def _load(backtest_id: int) -> Backtest:
    rows = Backtest.objects.select_related("flow__live_version", "version", "asked_by").defer("run_ids")
    return get_object_or_404(rows.defer("run_ids", "flow__live_version__spec", "version__spec"), pk=backtest_id)
