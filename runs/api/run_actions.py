"""Starting, cancelling and repeating runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import CANCEL_RUNS, REPEAT_RUNS, SEE_RUNS, START_RUNS
from runs.api.idempotency import answer_once, idempotent
from runs.api.problems import Conflict
from runs.api.reading import read_body
from runs.api.run_actions_schema import (
    APPLIED,
    LOCATION,
    LOCATION_OF_MANY,
    REPLAYED,
    RETRY_AFTER,
    NewRunsSerializer,
    NothingSerializer,
    RunAgainSerializer,
    StartedRunsSerializer,
)
from runs.api.run_documents import build_new_run, load_run
from runs.api.run_links import RunLinks
from runs.api.run_orders import prepare_again, prepare_many
from runs.api.schema_parts import IDEMPOTENCY_KEY, PREFER, problem_responses
from runs.api.schemas.runs import Run as RunSchema
from runs.api.schemas.runs import RunParts
from runs.api.started_together import ListStarted, link_started
from runs.api.view import ApiView
from runs.api.waiting import read_wait, wait_for_end
from runs.models import Run, RunStatus
from runs.submission import cancel_run, store_runs

RUN_ANSWERS = {
    200: OpenApiResponse(RunSchema, "The run ended within the time that `Prefer: wait` gave it; with its attempts."),
    202: OpenApiResponse(RunSchema, "The run is queued; read it at `Location` until it has ended."),
}

_FLOW = "colour-theme"
_INPUT = {"brand": "Fjordkaffe", "about": "A small roastery in Bergen.", "mood": "calm"}


def _show_body(body: dict[str, Any]) -> OpenApiExample:
    return OpenApiExample("Of an example flow", value=body, request_only=True)


NEW_RUN_EXAMPLE = _show_body({"flow": _FLOW, "input": _INPUT, "labels": ["nightly"]})


class RunBulk(ListStarted, ApiView):
    """Many runs at once."""

    needs = {"GET": SEE_RUNS, "POST": START_RUNS}

    @extend_schema(
        operation_id="createRuns",
        tags=["Runs"],
        summary="Start many runs",
        description="Queues up to 1,000 runs of one version, all or none. If anything is wrong with any of them, "
        "`errors` says what is wrong with each, and nothing is started.",
        parameters=[IDEMPOTENCY_KEY, LOCATION_OF_MANY, RETRY_AFTER, REPLAYED],
        request=NewRunsSerializer,
        examples=[_show_body({"flow": _FLOW, "runs": [{"input": _INPUT, "metadata": {"row": 1}}]})],
        responses={
            202: OpenApiResponse(StartedRunsSerializer, "The runs are queued; `Location` lists them."),
            **problem_responses(409),
        },
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Start runs; see ``NewRunsSerializer``."""
        return answer_once(request, lambda: partial(_start_many, request, prepare_many(request)))


class RunCancel(ApiView):
    """Cancelling one run."""

    needs = {"POST": CANCEL_RUNS}

    @extend_schema(
        operation_id="cancelRun",
        tags=["Runs"],
        summary="Cancel a run",
        description="A queued run is cancelled at once, a running one as soon as its worker hears of it: "
        "`cancel_requested` is true until then. Asking for it twice changes nothing: a run that was cancelled is "
        "answered as it is. One that ended otherwise is a conflict (409).",
        parameters=[IDEMPOTENCY_KEY, RETRY_AFTER, REPLAYED],
        request=NothingSerializer,
        responses={
            202: OpenApiResponse(RunSchema, "The run is cancelled, or is about to be."),
            **problem_responses(404, 409),
        },
    )
    @idempotent
    def post(self, request: Request, run_id: int) -> HttpResponseBase:
        """Cancel the run; 409 if it ended otherwise."""
        read_body(NothingSerializer, request)
        run = Run.objects.filter(pk=run_id).first()
        if run is None:
            raise Http404
        if not cancel_run(run=run) and run.status != RunStatus.CANCELLED:
            raise Conflict("run-ended", f"Run {run_id} has ended already: it {_SAY_END[run.status]}.")
        headers = {} if run.has_ended else {"Retry-After": "1"}
        return Response(_load_answer(request, run_id), HTTPStatus.ACCEPTED, headers=headers)


class RunAgain(ApiView):
    """Running a run again."""

    needs = {"POST": REPEAT_RUNS}

    @extend_schema(
        operation_id="runAgain",
        tags=["Runs"],
        summary="Run a run again",
        description="Starts a new run with the input of this one and everything else that it was given, but for what "
        "the body says. The label of a bulk action that started this one, such as `bulk-7`, is not taken over. Answers "
        "as the start of a run does.",
        parameters=[IDEMPOTENCY_KEY, PREFER, LOCATION, RETRY_AFTER, APPLIED, REPLAYED],
        request=RunAgainSerializer,
        responses={**RUN_ANSWERS, **problem_responses(404, 409)},
    )
    def post(self, request: Request, run_id: int) -> HttpResponseBase:
        """Start a run like the one of that number; see ``RunAgainSerializer``."""
        response = answer_once(request, lambda: partial(start_run, request, prepare_again(request, run_id)))
        return wait_if_asked(request, response)


_SAY_END = {
    "succeeded": "succeeded",
    "failed": "failed",
    "errored": "ended with an error",
}


def start_run(request: Request, runs: Sequence[Run]) -> Response:
    """Store the one run of ``runs``, and answer with it."""
    run = build_new_run(store_runs(runs)[0], RunLinks(request), started_by=request.user.get_username())
    return Response(run, HTTPStatus.ACCEPTED, headers={"Location": run.url, "Retry-After": "1"})


def _start_many(request: Request, runs: Sequence[Run]) -> Response:
    stored = store_runs(runs)
    links = RunLinks(request)
    address = link_started(links, stored)
    document = {
        "flow": stored[0].flow.name,
        "version": stored[0].version.number,
        "count": len(stored),
        "url": address,
        "runs": [{"id": run.pk, "url": links.link_run(run.pk)} for run in stored],
    }
    return Response(document, HTTPStatus.ACCEPTED, headers={"Location": address, "Retry-After": "1"})


def _load_answer(request: Request, run_id: int, *, has_attempts: bool = False) -> RunSchema:
    """The run as it is read at its own address. Raises ``Http404`` if it is gone."""
    run = load_run(run_id, RunLinks(request), RunParts(attempts="all" if has_attempts else "none"))
    if run is None:
        raise Http404
    return run


def wait_if_asked(request: Request, response: HttpResponseBase) -> HttpResponseBase:
    """The answer to a request that started a run: the finished run if it asks to wait and the run ends in time.

    A request that is sent again waits again: it is answered what the first one would have been. A run that is gone
    can't be told of: then the answer is that it was started.
    """
    seconds = read_wait(request)
    if seconds is None or response.status_code != HTTPStatus.ACCEPTED:
        return response
    if not request.user.has_perm(SEE_RUNS.permission):
        return response
    run_id = int(response["Location"].rpartition("/")[2])
    has_ended = wait_for_end(run_id, seconds)
    if has_ended is None:
        return response
    told = ("Location", "Idempotency-Replayed", *(() if has_ended else ("Retry-After",)))
    headers = {name: response[name] for name in told if name in response}
    headers["Preference-Applied"] = f"wait={seconds}"
    status = HTTPStatus.OK if has_ended else HTTPStatus.ACCEPTED
    try:
        # Also where it goes on: what was true when it was started isn't any more.
        return Response(_load_answer(request, run_id, has_attempts=has_ended), status, headers=headers)
    except Http404:
        return response


urls: list[URLPattern] = [
    path("runs/bulk", RunBulk.as_view(), name="run-bulk"),
    path("runs/<int:run_id>/cancel", RunCancel.as_view(), name="run-cancel"),
    path("runs/<int:run_id>/run-again", RunAgain.as_view(), name="run-again"),
]
