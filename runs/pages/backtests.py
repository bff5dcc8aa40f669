"""Backtests: the list of a flow, requesting one, and the views of one.

While a backtest is in progress its page shows how far it is; the rest comes once, when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from flows.engine.backtest import find_untestable
from flows.engine.backtest_result import AuditChange, BacktestKind
from flows.engine.differences import compare_specs, summarise_changes
from flows.engine.errors import SpecError
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from flows.portability import describe_place
from runs.backtests.requests import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    NoRunsError,
    TooManyBacktestsError,
    request_backtest,
    stop_backtest,
)
from runs.backtests.totals import Totals, describe_totals, list_pieces
from runs.filter_fields import parse_run_number
from runs.formatting import format_count, format_duration
from runs.history.texts import cut_text, show_invisible
from runs.models import Attempt, Backtest, BacktestRun, Step, Worker
from runs.pages.access import get_user, refuse, require_permission, require_viewer
from runs.pages.addresses import Pager, read_exact_filters
from runs.pages.attempts import quote_value
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.bulk import BADGES, list_filter_words
from runs.pages.flow_version import fetch_flow, load_specs

MAX_LISTED = 50
"""Backtests that the list of them shows."""
NOT_STARTED = "The backtest was not started"


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


# One backtest


@require_viewer
def show_backtest(request: HttpRequest, backtest_id: int, is_update: bool = False) -> HttpResponse:
    """One backtest; ``?kind=`` lists the runs that differ in one way, ``?before=`` those before a run.

    One that leaves out each audit is a column of the flow's page. A page that has the revision ``seen`` asks for what
    ``is_update``: 204 if nothing has changed.
    """
    backtest = _load(backtest_id)
    if is_update and request.GET.get("seen") == str(backtest.revision):
        return HttpResponse(status=204)
    if not is_update and backtest.leaves_out_each and backtest.version is not None:
        is_live = backtest.version_id == backtest.flow.live_version_id
        query = "" if is_live else f"?version={backtest.version.number}"
        return redirect(f"{reverse('runs:flow', args=[backtest.flow.name])}{query}#audits")
    page = load_backtest_page(backtest, {} if is_update else request.GET)
    return render(request, "runs/backtest.html", {**page, "is_update": is_update})


def _load(backtest_id: int) -> Backtest:
    rows = Backtest.objects.select_related("flow__live_version", "version", "asked_by").defer("run_ids")
    return get_object_or_404(rows.defer("run_ids", "flow__live_version__spec", "version__spec"), pk=backtest_id)


FIRST_ROWS = 3
"""Runs of a kind that the page shows at first."""
PAGE_SIZE = 25
SHOWN_ISSUES = 4
"""Issues of a cell that the template shows; SQLite bounds how many places one query asks for."""
SHORT_TEXT = 240

KINDS: Mapping[str, tuple[Badge, str]] = {
    BacktestKind.REFUSED: (Badge("Refused", "x-circle", "failed"), "would be refused"),
    BacktestKind.BEYOND: (Badge("Unknown", "exclamation-triangle", "errored"), "can’t be judged beyond a step"),
    BacktestKind.NOT_REPRODUCIBLE: (Badge("Not judged", "question-mark-circle", "errored"), "don’t come out as stored"),
    BacktestKind.SOONER: (Badge("Sooner", "check-circle", "passed"), "would end sooner"),
}
"""Kinds of runs that have rows, the most severe first: how they would end, and what a group of them is called."""


def load_backtest_page(backtest: Backtest, query: Mapping[str, str]) -> dict[str, Any]:
    """What the page shows."""
    totals = Totals.from_document(backtest.totals)
    spec = _read_spec(backtest)
    context = {
        "backtest": backtest,
        "flow": backtest.flow,
        "candidate": name_candidate(backtest),
        "badge": BADGES[backtest.state],
        "totals": totals,
        "pieces": list_pieces(totals),
        "sentence": describe_totals(totals),
        "filter_words": [one for one in list_filter_words(backtest.query) if one[0] != "Flow"],
        "has_no_worker": backtest.is_unfinished and not Worker.objects.alive().exists(),
    }
    if backtest.is_unfinished:
        return context
    has_times = backtest.started_at is not None and backtest.ended_at is not None
    seconds = (backtest.ended_at - backtest.started_at).total_seconds() if has_times else None  # type: ignore[operator]
    context |= {
        "took": format_duration(seconds),
        "is_live": backtest.version_id is not None and backtest.version_id == backtest.flow.live_version_id,
        **_compare_with_base(backtest, spec),
        "audits": _list_audits(totals, spec),
    }
    kinds = {kind.value: totals.get(kind) for kind in BacktestKind}
    return context | {"bar": _plot_bar(totals), "kinds": kinds, **_load_groups(backtest, totals, query)}


def _read_spec(backtest: Backtest) -> FlowSpec | None:
    try:
        return FlowSpec.from_document(backtest.document)
    except SpecError:
        return None


def name_candidate(backtest: Backtest) -> str:
    """What is judged by: ``v4``, or ``Draft``."""
    return f"v{backtest.version.number}" if backtest.version else "Draft"


def _compare_with_base(backtest: Backtest, spec: FlowSpec | None) -> dict[str, Any]:
    """What the candidate changes against the version that was live, and what of it history can't answer."""
    base = backtest.flow.versions.filter(number=backtest.base_version or 0).defer("spec").first()
    old = load_specs([base])[base.pk] if base else None
    if spec is None or old is None:
        return {}
    places = [describe_place(backtest.document, problem.path) for problem in find_untestable(old, spec)]
    changes = compare_specs(old, spec)
    return {
        "changes": changes,
        "summary": summarise_changes(changes),
        "is_comparable": True,
        "untestable": list(dict.fromkeys(places)),
    }


def _plot_bar(totals: Totals) -> list[tuple[str, str, str]]:
    """The parts of the bar, the most severe first: kind, where it begins and how wide it is, in per cent."""
    counts = {
        "refused": totals.get(BacktestKind.REFUSED).runs,
        "unjudged": totals.unjudged,
        "sooner": totals.get(BacktestKind.SOONER).runs,
        "same": totals.get(BacktestKind.SAME).runs,
    }
    shares = [100 * count / max(1, totals.result.runs) for count in counts.values()]
    starts = accumulate(shares, initial=0.0)
    return [
        (kind, f"{start:.2f}%", f"{share:.2f}%")
        for kind, start, share in zip(counts, starts, shares, strict=False)
        if share
    ]


# The runs that differ


def _load_groups(backtest: Backtest, totals: Totals, query: Mapping[str, str]) -> dict[str, Any]:
    """The first runs of each kind, or a page of one kind."""
    only, before = query.get("kind", ""), parse_run_number(query.get("before", ""))
    only = only if only in KINDS else ""
    size = PAGE_SIZE if only else FIRST_ROWS
    url = f"{reverse('runs:backtest', args=[backtest.pk])}?kind={only}"
    groups, pager = [], Pager()
    for kind in [only] if only else KINDS:
        found = BacktestRun.objects.filter(backtest=backtest, kind=kind).select_related("run").order_by("-run_id")
        found = found.only(*_ROW_COLUMNS)
        if only and before is not None:
            found = found.filter(run_id__lt=before)
        rows = list(found[: size + 1])
        count = totals.get(BacktestKind(kind)).runs
        if only:
            older_url = f"{url}&before={rows[size - 1].run_id}#differing" if len(rows) > size else ""
            pager = Pager(older_url=older_url, newest_url="" if before is None else f"{url}#differing")
        if rows:
            badge, words = KINDS[kind]
            groups.append(
                {
                    "kind": kind,
                    "badge": badge,
                    "title": f"{format_count(count)} {words}",
                    "rows": _build_rows(rows[:size]),
                    "has_more": not only and len(rows) > size,
                }
            )
    return {"groups": groups, "only": only, "page": pager}


_ROW_COLUMNS = (
    *("kind", "sentence", "step", "attempt", "ended", "ends", "is_hypothetical", "attempts_saved", "cost_saved"),
    *("unpriced", "further_calls", "gone", "new", "backtest", "run__created_at", "run__outputs_removed_at"),
)


def _build_rows(rows: Sequence[BacktestRun]) -> list[tuple[BacktestRun, str, Badge, Sequence[tuple[str, Any]]]]:
    """Rows with the names of their steps, how they would end, and issues that are gone and new. Two queries."""
    names = {
        (run_id, index): name
        for run_id, index, name in Step.objects.filter(run__in=[row.run_id for row in rows])
        .order_by()
        .values_list("run_id", "index", "name")
    }
    places = {
        (row.run_id, one["step"], one["attempt"])
        for row in rows
        for one in (*row.gone[:SHOWN_ISSUES], *row.new[:SHOWN_ISSUES])
        if one["path"]
    }
    outputs: dict[tuple[int, int, int], Any] = {}
    if places:
        wanted = Q()
        for run_id, step, attempt in places:
            wanted |= Q(step__run=run_id, step__index=step, number=attempt)
        columns = ("step__run", "step__index", "number", "output")
        outputs = {tuple(key): output for *key, output in Attempt.objects.filter(wanted).values_list(*columns)}
    return [
        (
            row,
            names.get((row.run_id, row.step or 0), ""),
            STATES[row.ends] if row.kind == BacktestKind.SOONER and row.ends else KINDS[row.kind][0],
            [("gone", _list_issues(row, row.gone, outputs)), ("new", _list_issues(row, row.new, outputs))],
        )
        for row in rows
    ]


def _list_issues(
    row: BacktestRun, issues: Sequence[Mapping[str, Any]], outputs: Mapping[tuple[int, int, int], Any]
) -> list[dict[str, Any]]:
    """Issues with what they are about, as the stored output has it."""
    return [
        {
            "badge": SEVERITIES[one["severity"]],
            "title": show_invisible(one["audit"] or one["code"].replace("_", " ").capitalize()),
            "message": cut_text(one["description"], SHORT_TEXT),
            "value": quote_value(outputs.get((row.run_id, one["step"], one["attempt"])), one["path"])[1],
        }
        for one in issues
    ]


# Audits


def _list_audits(totals: Totals, spec: FlowSpec | None) -> list[tuple[AuditChange, str, Badge | None]]:
    """What becomes of each audit in the runs of the backtest, with its step and its severity."""
    steps = dict(enumerate(spec.steps if spec else (), 1))
    severities = {(number, audit.name): audit.severity.value for number, step in steps.items() for audit in step.audits}
    return [
        (
            one,
            f"{one.step} {steps[one.step].name if one.step in steps else ''}".strip(),
            SEVERITIES.get(severities.get((one.step, one.audit), "")),
        )
        for one in totals.result.audits
    ]
