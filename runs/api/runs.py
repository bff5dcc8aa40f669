"""Runs: listing, starting, reading, changing, cancelling and running again."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.db import connection
from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiExample, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import CHANGE_RUNS, READ_RUNS, RERUN_RUNS, START_RUNS
from runs.api.base import ApiView, build_page, operation
from runs.api.idempotency import idempotent
from runs.api.openapi import (
    APPLIED,
    IDEMPOTENCY_KEY,
    LOCATION,
    LOCATION_OF_MANY,
    PAGE_PARAMETERS,
    PREFER,
    REPLAYED,
    RETRY_AFTER,
)
from runs.api.paging import NUMBERS, cut_found, find_paging
from runs.api.problems import Conflict, InvalidQuery
from runs.api.run_documents import build_new_run, load_run, load_summaries
from runs.api.run_links import RunLinks
from runs.api.run_orders import prepare_many, prepare_rerun, prepare_run
from runs.api.run_parts import fetch_page
from runs.api.run_query import find_filters
from runs.api.runs_parameters import FILTERS
from runs.api.schemas.base import Nothing
from runs.api.schemas.run_bodies import NewRun, NewRuns, Rerun, RunChange
from runs.api.schemas.runs import Run, RunPage, RunParts, StartedFilters, StartedRuns
from runs.api.waiting import answer_at_end
from runs.filters import find_runs
from runs.models import Run as RunRow
from runs.models import RunStatus
from runs.submission import cancel_run, change_run, store_runs

RUN_ANSWERS = {
    200: OpenApiResponse(Run, "The run ended within the time that `Prefer: wait` gave it; with its attempts."),
    202: OpenApiResponse(Run, "The run is queued; read it at `Location` until it has ended."),
}
_INPUT = {"brand": "Fjordkaffe", "about": "A small roastery in Bergen.", "mood": "calm"}
_HEAD = RunParts(attempts="none")


def _show_body(body: dict[str, Any]) -> OpenApiExample:
    return OpenApiExample("Of an example flow", value=body, request_only=True)


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
        page = cut_found(found, paging)
        items = load_summaries(page.rows, RunLinks(request))
        return build_page(RunPage, request, items, next=page.next, previous=page.previous)

    @operation(
        "createRun",
        "Start a run",
        tag="Runs",
        requires=START_RUNS,
        parameters=[IDEMPOTENCY_KEY, PREFER, LOCATION, RETRY_AFTER, APPLIED, REPLAYED],
        body=NewRun,
        examples=[_show_body({"flow": "colour-theme", "input": _INPUT, "labels": ["nightly"]})],
        answers=RUN_ANSWERS,
        problems=[409],
    )
    def post(self, request: Request, body: NewRun) -> HttpResponseBase:
        """Queues a run and answers at once with 202, unless `Prefer: wait` asks to wait for its end."""
        return answer_at_end(request, self._start(request, body))

    @idempotent
    def _start(self, request: Request, body: NewRun) -> HttpResponseBase:
        return start_run(request, prepare_run(request, body))


class RunBulk(ApiView):
    """``/runs/bulk``"""

    @operation(
        "listStartedRuns",
        "List the runs that one request started",
        tag="Runs",
        requires=READ_RUNS,
        query=StartedFilters,
        answers={200: RunPage},
        problems=[404],
    )
    def get(self, request: Request, query: StartedFilters) -> Response:
        """Exactly those, the newest first, whatever else was started at the same time.

        Follow the `Location` of `createRuns`. With `status=queued,running` the list is empty once all have ended.
        """
        runs = _select_started(query.first, query.last)
        if query.status:
            runs = runs.filter(status__in=query.status)
        found, turns = fetch_page(runs, query, columns=("pk",), key_of=lambda run: (run.pk,), is_descending=True)
        items = load_summaries([run.pk for run in found], RunLinks(request))
        return build_page(RunPage, request, items, **turns)

    @operation(
        "createRuns",
        "Start many runs",
        tag="Runs",
        requires=START_RUNS,
        parameters=[IDEMPOTENCY_KEY, LOCATION_OF_MANY, RETRY_AFTER, REPLAYED],
        body=NewRuns,
        examples=[_show_body({"flow": "colour-theme", "runs": [{"input": _INPUT, "metadata": {"row": 1}}]})],
        answers={202: OpenApiResponse(StartedRuns, "The runs are queued; `Location` lists them.")},
        problems=[409],
    )
    @idempotent
    def post(self, request: Request, body: NewRuns) -> HttpResponseBase:
        """Queues up to 1,000 runs of one version, all or none.

        If anything is wrong with any of them, `errors` says what is wrong with each, and nothing is started.
        """
        stored = store_runs(prepare_many(request, body))
        links = RunLinks(request)
        numbers = [run.pk for run in stored]
        address = f"{links.link_run('bulk')}?{urlencode({'first': min(numbers), 'last': max(numbers)})}"
        answer = {
            "flow": stored[0].flow.name,
            "version": stored[0].version.number,
            "count": len(stored),
            "url": address,
            "runs": [{"id": number, "url": links.link_run(number)} for number in numbers],
        }
        headers = {"Location": address, "Retry-After": "1"}
        return Response(StartedRuns.model_validate(answer), 202, headers=headers)


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
        return _load(request, run_id, query)

    @operation(
        "changeRun",
        "Change the labels and metadata of a run",
        tag="Runs",
        requires=CHANGE_RUNS,
        body=RunChange,
        answers={200: Run},
        problems=[404],
    )
    def patch(self, request: Request, run_id: int, body: RunChange) -> Run:
        """Sets what the body names, at any time; the answer is the run without its attempts."""
        try:
            change_run(run_id=run_id, changes=body.model_dump(exclude_unset=True))
        except RunRow.DoesNotExist:
            raise Http404 from None
        return _load(request, run_id, _HEAD)


class RunCancel(ApiView):
    """``/runs/<run_id>/cancel``"""

    @operation(
        "cancelRun",
        "Cancel a run",
        tag="Runs",
        requires=CHANGE_RUNS,
        parameters=[IDEMPOTENCY_KEY, RETRY_AFTER, REPLAYED],
        body=Nothing,
        answers={202: OpenApiResponse(Run, "The run is cancelled, or is about to be.")},
        problems=[404, 409],
    )
    @idempotent
    def post(self, request: Request, run_id: int, body: Nothing) -> HttpResponseBase:
        """A queued run is cancelled at once, a running one as soon as its worker sees it.

        `cancel_requested` is true until then. A run that was cancelled already is answered as it is; one that ended
        otherwise is a conflict (409).
        """
        run = RunRow.objects.filter(pk=run_id).first()
        if run is None:
            raise Http404
        if not cancel_run(run=run) and run.status != RunStatus.CANCELLED:
            raise Conflict("run-ended", f"Run {run_id} has ended already: it {_ENDINGS[run.status]}.")
        headers = {} if run.has_ended else {"Retry-After": "1"}
        return Response(_load(request, run_id, _HEAD), 202, headers=headers)


_ENDINGS = {"succeeded": "succeeded", "failed": "failed", "errored": "ended with an error"}


class RunAgain(ApiView):
    """``/runs/<run_id>/run-again``"""

    @operation(
        "runAgain",
        "Run a run again",
        tag="Runs",
        requires=RERUN_RUNS,
        parameters=[IDEMPOTENCY_KEY, PREFER, LOCATION, RETRY_AFTER, APPLIED, REPLAYED],
        body=Rerun,
        answers=RUN_ANSWERS,
        problems=[404, 409],
    )
    def post(self, request: Request, run_id: int, body: Rerun) -> HttpResponseBase:
        """Starts a run with the input of this one and everything else that it was given, but for what the body says.

        The label of a bulk action that started this one, such as `bulk-7`, is not taken over. Answers as the start of
        a run does.
        """
        return answer_at_end(request, self._start(request, run_id, body))

    @idempotent
    def _start(self, request: Request, run_id: int, body: Rerun) -> HttpResponseBase:
        return start_run(request, prepare_rerun(request, run_id, body))


def start_run(request: Request, run: RunRow) -> Response:
    """Store a prepared run, and answer with it."""
    (stored,) = store_runs([run])
    answer = build_new_run(stored, RunLinks(request), started_by=request.user.get_username())
    return Response(answer, 202, headers={"Location": answer.url, "Retry-After": "1"})


def _load(request: Request, run_id: int, parts: RunParts) -> Run:
    run = load_run(run_id, RunLinks(request), parts)
    if run is None:
        raise Http404
    return run


def _select_started(first: int, last: int) -> QuerySet[RunRow, RunRow]:
    """The runs from the number ``first`` to ``last`` that were started with these two.

    SQLite lets one request write at a time, so that all numbers in between are its own. With PostgreSQL others may get
    some of them; there one statement stores what a request starts, and gives all of it the same time.
    Raises ``Http404`` if one of the two is gone, or they were not started together.
    """
    shared = ["version", "started_by", *(["created_at"] if connection.vendor == "postgresql" else [])]
    ends = list(RunRow.objects.filter(pk__in=(first, last)).order_by("pk").values("pk", *shared))
    if first > last or [end.pop("pk") for end in ends] != sorted({first, last}) or ends[0] != ends[-1]:
        raise Http404
    return RunRow.objects.filter(pk__range=(first, last), **ends[0]).only("pk")


urls: list[URLPattern] = [
    path("runs", RunList.as_view(), name="run-list"),
    path("runs/bulk", RunBulk.as_view(), name="run-bulk"),
    path("runs/<int:run_id>", RunDetail.as_view(), name="run"),
    path("runs/<int:run_id>/cancel", RunCancel.as_view(), name="run-cancel"),
    path("runs/<int:run_id>/run-again", RunAgain.as_view(), name="run-again"),
]
