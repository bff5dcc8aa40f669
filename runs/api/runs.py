"""Lists of runs, and one run."""

from __future__ import annotations

from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api import run_issues, run_steps, run_usage
from runs.api.access import READ_RUNS, START_RUNS
from runs.api.base import ApiView, build_page, operation
from runs.api.idempotency import idempotent
from runs.api.looking import cut_found
from runs.api.paging import NUMBERS, find_paging
from runs.api.problems import InvalidQuery
from runs.api.run_actions import NEW_RUN_EXAMPLE, RUN_ANSWERS, start_run, wait_if_asked
from runs.api.run_actions_schema import APPLIED, LOCATION, REPLAYED, RETRY_AFTER
from runs.api.run_documents import load_run, load_summaries
from runs.api.run_links import RunLinks
from runs.api.run_orders import prepare_run
from runs.api.run_query import find_filters
from runs.api.runs_parameters import FILTERS
from runs.api.schema_parts import IDEMPOTENCY_KEY, PAGE_PARAMETERS, PREFER
from runs.api.schemas.run_bodies import NewRun
from runs.api.schemas.runs import Run, RunPage, RunParts
from runs.filters import find_runs


class RunList(ApiView):
    """``/runs``"""

    @operation(
        "listRuns",
        "List runs",
        tag="Runs",
        requires=READ_RUNS,
        parameters=[*FILTERS, *PAGE_PARAMETERS],
        answers={200: RunPage},
    )
    def get(self, request: Request) -> Response:
        """The runs that meet all filters, the newest first, without their inputs, steps and attempts.

        A search that finds little in very many runs may stop early: then a page has fewer items than `limit`, or none,
        and `next` goes on from where it stopped. The list ends where `next` is null.
        """
        filters, problems = find_filters(request.query_params)
        paging, paging_problems = find_paging(request.query_params, NUMBERS)
        if problems or paging_problems:
            raise InvalidQuery([*problems, *paging_problems])
        # One more than the page holds tells whether there is another.
        found = find_runs(filters, before=paging.before, after=paging.after, limit=paging.limit + 1)
        page = cut_found(found.ids, found.looked_to, paging)
        items = load_summaries(page.rows, RunLinks(request))
        return build_page(RunPage, request, items, next=page.next, previous=page.previous)

    @operation(
        "createRun",
        "Start a run",
        tag="Runs",
        requires=START_RUNS,
        parameters=[IDEMPOTENCY_KEY, PREFER, LOCATION, RETRY_AFTER, APPLIED, REPLAYED],
        body=NewRun,
        examples=[NEW_RUN_EXAMPLE],
        answers=RUN_ANSWERS,
        problems=[409],
    )
    def post(self, request: Request, body: NewRun) -> HttpResponseBase:
        """Queues a run and answers at once with 202, unless `Prefer: wait` asks to wait for its end."""
        return wait_if_asked(request, self._start(request, body=body))

    @idempotent
    def _start(self, request: Request, body: NewRun) -> HttpResponseBase:
        return start_run(request, prepare_run(request, body))


class RunDetail(ApiView):
    """``/runs/<run_id>``"""

    @operation(
        "getRun",
        "Read a run",
        tag="Runs",
        requires=READ_RUNS,
        query=RunParts,
        answers={200: Run},
        problems=[404],
        has_etag=True,
    )
    def get(self, request: Request, run_id: int, query: RunParts) -> Run:
        """The run with its steps and their attempts, each with its own issues and token usage. Step 0 is the input."""
        run = load_run(run_id, RunLinks(request), query)
        if run is None:
            raise Http404
        return run


urls: list[URLPattern] = [
    path("runs", RunList.as_view(), name="run-list"),
    path("runs/<int:run_id>", RunDetail.as_view(), name="run"),
    *run_steps.urls,
    *run_issues.urls,
    *run_usage.urls,
]
