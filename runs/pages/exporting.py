"""The runs of a list as files, and how far a download is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.models import RunExport
from runs.pages.access import require_permission
from runs.pages.exact_filters import read_exact_filters
from runs.pages.export_files import CsvFile, ExportFile, JsonLinesFile
from runs.pages.export_stream import RunStream, begin_export
from runs.pages.part_stream import TooManyFilesError, announce_file, answer_too_many, send_file

SEE_RUNS = "runs.view_run"
MOST_ASKED = 30
"""How often a page asks after a download that never begins."""
SILENCE = timedelta(seconds=30)
"""A download that has not come on for so long waits for its reader, or is broken off."""

_FORMATS: Mapping[str, Callable[[bool], ExportFile]] = {
    "csv": lambda has_attempts: CsvFile(),
    "jsonl": lambda has_attempts: JsonLinesFile(has_attempts=has_attempts),
}


@require_safe
@require_permission(SEE_RUNS)
def export_runs(request: HttpRequest, format: str) -> HttpResponseBase:
    """All runs that match the filters of the address, as a file; ``?with=attempts`` brings their whole history.

    An address that makes no sense gets a page that says so: a file of other runs than were asked for looks just like
    the right one. ``?progress=`` is a number by which a page asks how far the download is.
    """
    if format not in _FORMATS:
        raise Http404
    filters, problems = read_exact_filters(request.GET, others=("with", "progress"))
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
        export = begin_export(
            filters,
            token=_find_token(request.GET.get("progress", "")),
            format=format,
            has_attempts=has_attempts,
            asked_by_id=request.user.pk,
        )
    except TooManyFilesError as error:
        return answer_too_many(request, error)
    stream = RunStream(file, filters, export, has_attempts=has_attempts)
    return send_file(request, stream, permission=SEE_RUNS, name=name, content_type=file.content_type)


def _find_problem(parts: str, format: str) -> str:
    if parts not in {"", "attempts"}:
        return f"“{parts[:40]}” can’t come with the runs; only attempts can."
    if parts and format == "csv":
        return "CSV has one row for each run; attempts come with JSON Lines."
    return ""


def _find_token(text: str) -> UUID:
    """The number that a page gave its download, or a new one if there is none or it was used before."""
    try:
        token = UUID(hex=text)
    except ValueError:
        return uuid4()
    return uuid4() if RunExport.objects.filter(token=token).exists() else token


@require_safe
@require_permission(SEE_RUNS)
def show_export_progress(request: HttpRequest, token: str) -> HttpResponse:
    """How far a download is, for the page that began it, which asks again. 204 if nothing changed since ``seen``."""
    try:
        export = RunExport.objects.filter(token=UUID(hex=token)).first()
    except ValueError:
        raise Http404 from None
    asked = _read_count(request.GET.get("asked", ""))
    if export is None:
        return render(
            request, "runs/export_progress.html", {"token": token, "next": asked + 1, "is_lost": asked >= MOST_ASKED}
        )
    is_silent = export.is_unfinished and export.touched_at < timezone.now() - SILENCE
    seen = f"{export.state}.{export.written}.{export.position}.{int(is_silent)}"
    if request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    context = {
        "token": token,
        "export": export,
        "is_silent": is_silent,
        "seen": seen,
        "is_first": "seen" not in request.GET,
    }
    return render(request, "runs/export_progress.html", context)


def _read_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


urls = [
    path("runs/export/<str:format>", export_runs, name="export"),
    path("runs/export/progress/<str:token>", show_export_progress, name="export-progress"),
]
