"""The runs of a list as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.pages.access import require_permission
from runs.pages.downloads import TooManyFilesError, announce_file, answer_too_many, send_file
from runs.pages.exact_filters import read_exact_filters
from runs.pages.export_files import CsvFile, ExportFile, JsonLinesFile
from runs.pages.export_stream import begin_export, read_parts

SEE_RUNS = "runs.view_run"

_FORMATS: Mapping[str, Callable[[bool], ExportFile]] = {
    "csv": lambda has_attempts: CsvFile(),
    "jsonl": lambda has_attempts: JsonLinesFile(has_attempts=has_attempts),
}


@require_safe
@require_permission(SEE_RUNS)
def export_runs(request: HttpRequest, format: str) -> HttpResponseBase:
    """All runs that match the filters of the address, as a file; ``?with=attempts`` brings their whole history.

    An address that makes no sense gets a page that says so: a file of other runs than were asked for looks just like
    the right one.
    """
    if format not in _FORMATS:
        raise Http404
    filters, problems = read_exact_filters(request.GET, others=("with",))
    if problem := _find_problem(request.GET.get("with", ""), format):
        problems = (*problems, problem)
    if problems:
        return render(request, "runs/export_refused.html", {"problems": problems}, status=400)
    has_attempts = request.GET.get("with") == "attempts"
    file = _FORMATS[format](has_attempts)
    name = f"toolflow-runs-{timezone.localdate().isoformat()}.{format}"
    try:
        if request.method == "HEAD":
            return announce_file(request, name=name, content_type=file.content_type)
        newest = begin_export(filters, format=format, has_attempts=has_attempts)
    except TooManyFilesError as error:
        return answer_too_many(request, error)
    parts = read_parts(file, filters, newest=newest, has_attempts=has_attempts)
    return send_file(request, parts, name=name, content_type=file.content_type)


def _find_problem(parts: str, format: str) -> str:
    if parts not in {"", "attempts"}:
        return f"“{parts[:40]}” can’t come with the runs; only attempts can."
    if parts and format == "csv":
        return "CSV has one row for each run; attempts come with JSON Lines."
    return ""


urls = [
    path("runs/export/<str:format>", export_runs, name="export"),
]
