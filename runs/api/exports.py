"""Runs as a file: JSON Lines or CSV."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from pydantic import Field
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from flows.engine.errors import Problem
from runs.api.access import READ_RUNS
from runs.api.base import ApiView, operation
from runs.api.media_types import JsonRenderer
from runs.api.problems import ApiProblem, InvalidQuery
from runs.api.run_filters import FilterFields, parse_filters
from runs.documents.base import Omitted, Query
from runs.exports.formats import Format
from runs.exports.streaming import RETRY_AFTER_SECONDS, TooManyFilesError, export_runs


class JsonLinesRenderer(BaseRenderer):
    """Accepts requests for JSON Lines, which ``export_runs`` writes."""

    media_type = "application/x-ndjson"
    format = "jsonl"


class CsvRenderer(BaseRenderer):
    """The same for CSV."""

    media_type = "text/csv"
    format = "csv"


class ExportQuery(Query):
    """What an export holds."""

    format: Format | Omitted = Field(None, description="Overrides the header `Accept`.")
    attempts: Literal["all", "none"] = Field(
        "none",
        description="`all` brings all steps, attempts, outputs, issues, requests and usage along; JSON Lines only.",
    )


_FILE = OpenApiResponse(OpenApiTypes.STR, "The file.")


class RunExports(ApiView):
    """Runs as a file."""

    renderer_classes: Any = (JsonLinesRenderer, CsvRenderer, JsonRenderer)

    @operation(
        "GET runs/export",
        "Export runs as JSON Lines or CSV",
        READ_RUNS,
        tag="Runs",
        more_queries=[FilterFields, ExportQuery],
        answers={(200, JsonLinesRenderer.media_type): _FILE, (200, CsvRenderer.media_type): _FILE},
    )
    def export_runs(self, request: Request) -> HttpResponseBase:
        """All runs that match the filters, the newest first, at any number.

        A JSON document in a line for each run (`application/x-ndjson`, JSON Lines, the default), or a row in a table
        (`text/csv`) for spreadsheets. `format` or the header `Accept` chooses. A file that breaks off ends without its
        last chunk, which clients report as an error. A run that is created meanwhile is not in it. Each export leaves
        an entry in the audit log.
        """
        filters, query = parse_filters(request.query_params, ExportQuery)
        # Only these two and JSON can be accepted.
        format: Format = "csv" if request.accepted_renderer.format == "csv" else "jsonl"
        has_attempts = query.attempts == "all"
        if has_attempts and format == "csv":
            problem = Problem("attempts", "CSV has one row per run and no attempts; use JSON Lines.")
            raise InvalidQuery([problem])
        try:
            return export_runs(request._request, filters, format=format, has_attempts=has_attempts)
        except TooManyFilesError as error:
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            raise ApiProblem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-exports", str(error), headers=headers) from None
