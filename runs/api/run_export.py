"""The runs that match filters as a file, at any size: it is sent as it is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from flows.engine.errors import Problem
from runs.api.access import SEE_RUNS, Need
from runs.api.problems import ApiProblem, InvalidQuery
from runs.api.run_query import find_choice, find_filters
from runs.api.runs_parameters import FILTERS
from runs.api.view import ApiView
from runs.filters import PARAMETERS
from runs.pages.downloads import RETRY_AFTER_SECONDS, TooManyFilesError, announce_file, send_file
from runs.pages.export_files import CsvFile, ExportFile, JsonLinesFile
from runs.pages.export_stream import begin_export, read_parts

CSV, JSON_LINES = "csv", "jsonl"
ATTEMPTS = ("all", "none")


class JsonLinesRenderer(JSONRenderer):
    """Lets whoever asks for JSON Lines in; what is rendered are the problems that came in their place."""

    media_type = "application/x-ndjson"
    format = JSON_LINES


class CsvRenderer(JSONRenderer):
    """The same for CSV."""

    media_type = "text/csv"
    format = CSV


_DESCRIPTION = """\
All runs that meet the filters, the newest first, whatever their number: a document in a line for each run
(`application/x-ndjson`, JSON Lines, the default), or a row in a table (`text/csv`) for
spreadsheets. `format` or the header `Accept` chooses. The file is sent as it is read; one that breaks off ends without
its last chunk, which clients report as an error. A run that begins meanwhile is not in it. Each export leaves an entry
in the trail.
"""


class RunExportView(ApiView):
    """The runs as a file."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": (*PARAMETERS, "format", "attempts")}
    repeatable = ("status", "label")
    renderer_classes: Any = (JsonLinesRenderer, CsvRenderer, JSONRenderer)

    @extend_schema(
        operation_id="exportRuns",
        tags=["Runs"],
        summary="Export runs as JSON Lines or CSV",
        description=_DESCRIPTION,
        parameters=[
            *FILTERS,
            OpenApiParameter(
                "format", {"type": "string", "enum": [CSV, JSON_LINES]}, description="Wins over the header `Accept`."
            ),
            OpenApiParameter(
                "attempts",
                {"type": "string", "enum": list(ATTEMPTS), "default": "none"},
                description="`all` brings all steps, attempts, outputs, issues, requests and usage along; JSON Lines "
                "only.",
            ),
        ],
        responses={
            (200, JsonLinesRenderer.media_type): OpenApiResponse(OpenApiTypes.STR, "The file."),
            (200, CsvRenderer.media_type): OpenApiResponse(OpenApiTypes.STR, "The file."),
        },
    )
    def get(self, request: Request) -> HttpResponseBase:
        """The file."""
        query = request.query_params
        filters, problems = find_filters(query)
        renderer: Any = request.accepted_renderer
        usual = CSV if renderer.format == CSV else JSON_LINES
        format = find_choice(query, "format", (CSV, JSON_LINES), usual, problems)
        has_attempts = find_choice(query, "attempts", ATTEMPTS, "none", problems) == "all"
        if has_attempts and format == CSV:
            problems.append(Problem("attempts", "CSV has one row for each run; attempts come with JSON Lines."))
        if problems:
            raise InvalidQuery(problems)
        file: ExportFile = CsvFile() if format == CSV else JsonLinesFile(has_attempts=has_attempts)
        name = f"toolflow-runs-{timezone.localdate().isoformat()}.{format}"
        try:
            if request.method == "HEAD":
                return announce_file(request._request, name=name, content_type=file.content_type)
            newest = begin_export(filters, format=format, has_attempts=has_attempts)
        except TooManyFilesError as error:
            raise ApiProblem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too-many-exports",
                str(error),
                headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
            ) from None
        parts = read_parts(file, filters, newest=newest, has_attempts=has_attempts)
        return send_file(request._request, parts, name=name, content_type=file.content_type)


urls: list[URLPattern] = [path("runs/export", RunExportView.as_view(), name="run-export")]
