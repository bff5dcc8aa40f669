"""The runs of a list as files."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from runs.exports.formats import CONTENT_TYPES
from runs.exports.streaming import RETRY_AFTER_SECONDS, TooManyFilesError, export_runs
from runs.pages.access import require_permission
from runs.pages.addresses import read_exact_filters


@require_safe
@require_permission("runs.view_run")
def export_list(request: HttpRequest, format: str) -> HttpResponseBase:
    """All runs that match the filters of the address, as a file; ``?with=attempts`` brings their whole history.

    An address that is not valid is refused: the file would look right and hold other runs.
    """
    if format not in CONTENT_TYPES:
        raise Http404
    filters, problems = read_exact_filters(request.GET, others=("with",))
    if problem := _find_problem(request.GET.get("with", ""), format):
        problems = (*problems, problem)
    if problems:
        return refuse_export(request, problems)
    try:
        return export_runs(request, filters, format=format, has_attempts=request.GET.get("with") == "attempts")
    except TooManyFilesError as error:
        return refuse_for_now(request, error)


def _find_problem(parts: str, format: str) -> str:
    if parts not in {"", "attempts"}:
        return f"“{parts[:40]}” is not a valid value of “with”; use “attempts”."
    if parts and format == "csv":
        return "CSV has one row per run and no attempts; export JSON Lines instead."
    return ""


def refuse_export(request: HttpRequest, problems: Sequence[str]) -> HttpResponse:
    """The page for an address that is not valid."""
    context = {
        "heading": "Nothing was exported",
        "reason": "The address has filters that are not valid, so the file would hold the wrong rows.",
        "problems": problems,
        "back_url": reverse("runs:list"),
    }
    return render(request, "runs/refused.html", context, status=HTTPStatus.BAD_REQUEST)


def refuse_for_now(request: HttpRequest, error: TooManyFilesError) -> HttpResponse:
    """The page for ``TooManyFilesError``."""
    context = {"heading": "Nothing was exported", "reason": str(error), "back_url": reverse("runs:list")}
    page = render(request, "runs/refused.html", context, status=HTTPStatus.SERVICE_UNAVAILABLE)
    page["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return page


urls = [
    path("runs/export/<str:format>", export_list, name="export"),
]
