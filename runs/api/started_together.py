"""The runs that one request started, as a list of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar
from urllib.parse import urlencode

from django.db import connection
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs.api.paging import NUMBERS, PAGING, answer_page, find_paging, read_page
from runs.api.problems import InvalidQuery
from runs.api.run_links import RunLinks
from runs.api.run_query import find_choices, find_row
from runs.api.runs_parameters import FILTERS
from runs.api.schema_parts import PAGE_PARAMETERS, problem_responses
from runs.api.schemas.runs import STATUSES, RunPage
from runs.documents import build_summary, load_run_rows
from runs.models import Run

_NUMBER = {"type": "integer", "minimum": 1}
_FIRST = OpenApiParameter("first", _NUMBER, required=True, description="The number of the first of the runs.")
_LAST = OpenApiParameter("last", _NUMBER, required=True, description="The number of the last one.")
_STATUS = next(one for one in FILTERS if one.name == "status")


class ListStarted:
    """``GET`` of the address that starts many runs."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": ("first", "last", "status", *PAGING)}
    repeatable: ClassVar[Collection[str]] = ("status",)

    @extend_schema(
        operation_id="listStartedRuns",
        tags=["Runs"],
        summary="List the runs that one request started",
        description="Exactly those, the newest first, whatever else was started at the same time: follow the "
        "`Location` of `createRuns` rather than make the address. With `status=queued,running` it tells whether any "
        "of them is still to be waited for.",
        parameters=[_FIRST, _LAST, _STATUS, *PAGE_PARAMETERS],
        responses={200: OpenApiResponse(RunPage, "A page of these runs."), **problem_responses(404)},
    )
    def get(self, request: Request) -> Response:
        """A page of the runs."""
        query = request.query_params
        paging, problems = find_paging(query, NUMBERS)
        first, last = find_row(query, "first", problems), find_row(query, "last", problems)
        statuses = find_choices(query, "status", STATUSES, problems)
        problems += [Problem(name, f"“{name}” is missing.") for name in ("first", "last") if name not in query]
        if problems or first is None or last is None:
            raise InvalidQuery(problems)
        runs = _find_started(first, last)
        if statuses:
            runs = runs.filter(status__in=statuses)
        page = read_page(runs, paging, column="pk", key_of=lambda run: run.pk, is_descending=True)
        links = RunLinks(request)
        rows = load_run_rows([run.pk for run in page.rows], has_input=False)
        return answer_page(
            request, page, [links.complete_run(build_summary(row, has_address=links.has_address)) for row in rows]
        )


def link_started(links: RunLinks, runs: Sequence[Run]) -> str:
    """Where these runs are listed, which were stored together."""
    numbers = [run.pk for run in runs]
    return f"{links.link_run('bulk')}?{urlencode({'first': min(numbers), 'last': max(numbers)})}"


def _find_started(first: int, last: int) -> QuerySet[Run, Run]:
    """The runs from the number ``first`` to ``last`` that were started with these two. Raises ``Http404`` if one of
    them is gone, or they were not started together.

    SQLite lets one request write at a time, so that all numbers in between are its own. With PostgreSQL others may get
    some of them; there one statement stores what a request starts, and gives all of it the same time.
    """
    shared = ["version", "started_by", *(["created_at"] if connection.vendor == "postgresql" else [])]
    ends = list(Run.objects.filter(pk__in=(first, last)).order_by("pk").values("pk", *shared))
    if first > last or [end.pop("pk") for end in ends] != sorted({first, last}) or ends[0] != ends[-1]:
        raise Http404
    return Run.objects.filter(pk__range=(first, last), **ends[0]).only("pk")
