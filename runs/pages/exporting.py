"""Runs as files: those of a list, and one run or one of its attempts as a JSON document."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from flows.engine.history import Severity
from runs.documents.loading import WHOLE, dump_without_addresses, load_attempt, load_run
from runs.documents.run import RunParts
from runs.exports.formats import CONTENT_TYPES
from runs.exports.streaming import RETRY_AFTER_SECONDS, TooManyFilesError, export_runs
from runs.pages.access import refuse, require_viewer
from runs.pages.addresses import read_exact_filters

NOT_EXPORTED = "Nothing was exported"
WRONG_ROWS = "The address has filters that are not valid, so the file would hold the wrong rows."


@require_viewer
def export_list(request: HttpRequest, format: str) -> HttpResponseBase:
    """All runs that match the filters of the address, as a file; ``?with=attempts`` brings their whole history.

    An address that is not valid is refused: the file would look right and hold other runs.
    """
    if format not in CONTENT_TYPES:
        raise Http404
    filters, problems = read_exact_filters(request.GET, others=("with",))
    parts = request.GET.get("with", "")
    if parts not in {"", "attempts"}:
        problems = (*problems, f"“{parts[:40]}” is not a valid value of “with”; use “attempts”.")
    elif parts and format == "csv":
        problems = (*problems, "CSV has one row per run and no attempts; export JSON Lines instead.")
    if problems:
        return refuse(request, NOT_EXPORTED, reason=WRONG_ROWS, problems=problems)
    try:
        return export_runs(request, filters, format=format, has_attempts=bool(parts))
    except TooManyFilesError as error:
        return refuse_for_now(request, error)


def refuse_for_now(request: HttpRequest, error: TooManyFilesError) -> HttpResponse:
    """The page where too many files are being sent already."""
    page = refuse(request, NOT_EXPORTED, reason=str(error), status=503)
    page["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return page


@require_viewer
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


@require_viewer
def show_attempt_document(request: HttpRequest, run_id: int, step: int, number: int) -> JsonResponse:
    """One attempt as JSON, whole, as a download."""
    attempt = load_attempt(run_id, step, number, None, WHOLE)
    if attempt is None or attempt.outcome is None:
        raise Http404
    response = JsonResponse(dump_without_addresses(attempt), json_dumps_params={"indent": 2})
    response["Content-Disposition"] = f'attachment; filename="run-{run_id}-step-{step}-attempt-{number}.json"'
    return response
