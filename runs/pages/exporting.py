"""The runs of a list as files."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_safe

from runs.exports.formats import CONTENT_TYPES
from runs.exports.streaming import RETRY_AFTER_SECONDS, TooManyFilesError, export_runs
from runs.pages.access import refuse, require_permission
from runs.pages.addresses import read_exact_filters

NOT_EXPORTED = "Nothing was exported"
WRONG_ROWS = "The address has filters that are not valid, so the file would hold the wrong rows."


@require_safe
@require_permission("runs.view_run")
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


urls = [
    path("runs/export/<str:format>", export_list, name="export"),
]
