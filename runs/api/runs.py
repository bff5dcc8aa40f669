"""Lists of runs, and one run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api import run_issues, run_steps, run_usage
from runs.api.access import SEE_RUNS, START_RUNS, Need
from runs.api.looking import cut_found
from runs.api.paging import NUMBERS, PAGING, answer_page, find_paging
from runs.api.problems import InvalidQuery
from runs.api.run_actions import CreateRun
from runs.api.run_links import RunLinks
from runs.api.run_part import RunPart
from runs.api.run_query import READING, find_filters, read_reading
from runs.api.runs_parameters import FILTERS, READING_PARAMETERS
from runs.api.runs_schema import RunPageSerializer, RunSerializer
from runs.api.schema_parts import PAGE_PARAMETERS, problem_responses
from runs.api.view import ApiView
from runs.documents import RunDocuments, build_summary, load_run_rows
from runs.run_filters import find_runs
from runs.run_filters.filters import PARAMETERS


class RunList(CreateRun, ApiView):
    """The runs, the newest first."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS, "POST": START_RUNS}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": (*PARAMETERS, *PAGING)}
    repeatable = ("status",)

    @extend_schema(
        operation_id="listRuns",
        tags=["Runs"],
        summary="List runs",
        description="The runs that meet all filters, the newest first, without their inputs, steps and attempts. "
        "A search that finds little in very many runs may stop early: then a page has fewer items than `limit`, or "
        "none, and `next` goes on from where it stopped. The list ends where `next` is null.",
        parameters=[*FILTERS, *PAGE_PARAMETERS],
        responses={200: OpenApiResponse(RunPageSerializer, "A page of runs.")},
    )
    def get(self, request: Request) -> Response:
        """A page of runs."""
        query = request.query_params
        filters, problems = find_filters(query)
        paging, paging_problems = find_paging(query, NUMBERS)
        if problems or paging_problems:
            raise InvalidQuery([*problems, *paging_problems])
        # One more than the page holds tells whether there is another.
        found = find_runs(filters, before=paging.before, after=paging.after, limit=paging.limit + 1)
        page = cut_found(found.ids, found.looked_to, paging)
        links = RunLinks(request)
        rows = load_run_rows(page.rows, has_input=False)
        return answer_page(
            request, page, [links.complete_run(build_summary(row, has_address=links.has_address)) for row in rows]
        )


class RunDetail(RunPart):
    """One run."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": READING}

    @extend_schema(
        operation_id="getRun",
        tags=["Runs"],
        summary="Read a run",
        description="The run with its steps and their attempts, each with its own issues and token usage. Step 0 is "
        "the input.",
        parameters=READING_PARAMETERS,
        responses={200: OpenApiResponse(RunSerializer, "The run."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int) -> Response:
        """The run."""
        return Response(find_run(request, run_id))


def find_run(request: Request, run_id: int) -> dict[str, Any]:
    """The document of a run as the query of ``request`` wants it. Raises ``InvalidQuery`` and ``Http404``."""
    reading = read_reading(request.query_params)
    links = RunLinks(request)
    documents = RunDocuments(has_attempts=reading.has_attempts, shown=reading.shown, has_address=links.has_address)
    for document in documents.read([run_id]):
        return links.complete_run(document)
    raise Http404


urls: list[URLPattern] = [
    path("runs", RunList.as_view(), name="run-list"),
    path("runs/<int:run_id>", RunDetail.as_view(), name="run"),
    *run_steps.urls,
    *run_issues.urls,
    *run_usage.urls,
]
