"""Pages that show runs. Each view reads one view model and renders it; nothing here changes a row."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from flows.engine.history import Severity
from runs.documents.loading import WHOLE, dump_without_addresses, load_attempt, load_run
from runs.documents.run import RunParts
from runs.pages.access import require_permission
from runs.pages.compared_attempts import MOST_COMPARED, find_problem, read_compared
from runs.pages.run_head import name_head
from runs.pages.run_page import find_run_page
from runs.pages.severity_filter import build_toggles, read_hidden
from runs.pages.wanted_attempts import Wanted

SHORT_INPUT = 12
"""Lines; an input of at most so many is open from the start."""


@require_safe
@require_permission("runs.view_run")
def show_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """One run with its attempts; it keeps itself up to date until the run has ended."""
    hidden, problem = read_hidden(request.GET.get("hide", ""))
    compared = read_compared(request.GET.get("diff", ""))
    page = find_run_page(run_id, Wanted(compared=compared[:MOST_COMPARED]))
    context = {
        "page": page,
        "head": name_head(page, request.user),
        "hidden": hidden,
        "problems": [words for words in (problem, find_problem(compared, page.attempts)) if words],
        "compared": ",".join(attempt.id for attempt in page.attempts if attempt.is_compared),
        "toggles": build_toggles(hidden, page.counts),
        "is_input_open": len(page.input.lines) <= SHORT_INPUT or not page.attempts,
    }
    return render(request, "runs/run_page.html", context)


@require_safe
@require_permission("runs.view_run")
def show_run_document(request: HttpRequest, run_id: int) -> JsonResponse:
    """The run as JSON; ``?min_severity=`` filters issues, ``?attempts=final`` leaves out earlier attempts."""
    severity, attempts = request.GET.get("min_severity", "low"), request.GET.get("attempts", "all")
    if severity not in list(Severity):
        return JsonResponse({"error": "min_severity must be low, medium, high or critical."}, status=400)
    if attempts not in ("all", "final"):
        return JsonResponse({"error": "attempts must be all or final."}, status=400)
    run = load_run(run_id, None, RunParts.model_validate({"attempts": attempts, "min_severity": severity}))
    if run is None:
        raise Http404
    return JsonResponse(dump_without_addresses(run), json_dumps_params={"indent": 2})


@require_safe
@require_permission("runs.view_run")
def show_attempt_document(request: HttpRequest, run_id: int, step: int, number: int) -> JsonResponse:
    """One attempt as JSON, whole, as a download."""
    attempt = load_attempt(run_id, step, number, None, WHOLE)
    if attempt is None or attempt.outcome is None:
        raise Http404
    response = JsonResponse(dump_without_addresses(attempt), json_dumps_params={"indent": 2})
    response["Content-Disposition"] = f'attachment; filename="run-{run_id}-step-{step}-attempt-{number}.json"'
    return response
