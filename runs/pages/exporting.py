"""The runs of a list as files."""

from __future__ import annotations

from http import HTTPStatus

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from runs.exports.formats import CONTENT_TYPES
from runs.exports.streaming import RETRY_AFTER_SECONDS, TooManyFilesError, export_runs
from runs.pages.access import require_permission
from runs.pages.addresses import read_exact_filters


@require_safe
@require_permission("runs.view_run")
def export_list(request: HttpRequest, format: str) -> HttpResponseBase:
    """All runs that match the filters of the address, as a file; ``?with=attempts`` brings their whole history.

    An address that is not valid gets a page that says so: a file of other runs would look just like the right one.
    """
    if format not in CONTENT_TYPES:
        raise Http404
    filters, problems = read_exact_filters(request.GET, others=("with",))
    if problem := _find_problem(request.GET.get("with", ""), format):
        problems = (*problems, problem)
    if problems:
        return render(request, "runs/export_refused.html", {"problems": problems}, status=400)
    try:
        return export_runs(request, filters, format=format, has_attempts=request.GET.get("with") == "attempts")
    except TooManyFilesError as error:
        return answer_too_many(request, error)


def _find_problem(parts: str, format: str) -> str:
    if parts not in {"", "attempts"}:
        return f"“{parts[:40]}” can’t come with the runs; only attempts can."
    if parts and format == "csv":
        return "CSV has one row for each run; attempts come with JSON Lines."
    return ""


def answer_too_many(request: HttpRequest, error: TooManyFilesError) -> HttpResponse:
    """The page for ``TooManyFilesError``."""
    page = render(request, "runs/export_later.html", {"sentence": str(error)}, status=HTTPStatus.SERVICE_UNAVAILABLE)
    page["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return page


urls = [
    path("runs/export/<str:format>", export_list, name="export"),
]
