"""Runs and attempts as JSON documents."""

from __future__ import annotations

from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from flows.engine.history import Severity
from runs.documents.loading import WHOLE, dump_without_addresses, load_attempt, load_run
from runs.documents.run import RunParts
from runs.pages.access import require_permission


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
